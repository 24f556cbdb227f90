"""ONNX ops on quantised tensors.

Matmuls and convolutions of integers read scales and zero points beside their
operands and have a result type of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.onnx.node import Handler, OnnxNode, plain
from perfc.frontends.onnx.op_map.convolution import window_attributes
from perfc.frontends.onnx.op_map.indexing import optional_dtype
from perfc.ir import DTYPES, AttrValue, DType, Value
from perfc.ir.support import UnsupportedModelError


def _quantize(node: OnnxNode) -> bool:
    """The zero point has the type of the result; without it an attribute, or u8."""
    zero_point = node.operand(2)
    dtype = optional_dtype(node, "output_dtype") or dtype_of(zero_point)
    attributes: dict[str, AttrValue] = {
        "dtype": dtype or DTYPES["u8"],
        "axis": node.integer("axis", 1),
    }
    node.emit("quantize", attributes=_blocked(node, attributes))
    return True


def _dequantize(node: OnnxNode) -> bool:
    attributes: dict[str, AttrValue] = {"axis": node.integer("axis", 1)}
    dtype = optional_dtype(node, "output_dtype")
    if dtype is not None:
        attributes["dtype"] = dtype
    node.emit("dequantize", attributes=_blocked(node, attributes))
    return True


def _blocked(node: OnnxNode, attributes: dict[str, AttrValue]) -> dict[str, AttrValue]:
    block = node.integer("block_size", 0)
    return {**attributes, "block_size": block} if block else attributes


def dtype_of(value: Value | None) -> DType | None:
    """Return the element type of a value, if it has a declared type."""
    return None if value is None or value.type is None else value.type.dtype


def _integer_matmul(node: OnnxNode) -> bool:
    node.emit("matmul", attributes={"dtype": DTYPES["i32"]})
    return True


def _integer_convolution(node: OnnxNode) -> bool:
    attributes = window_attributes(node)
    attributes |= {"groups": node.integer("group", 1), "dtype": DTYPES["i32"]}
    node.emit("conv", attributes=attributes)
    return True


_RESULT_ZERO_POINT = 7
"""Operand of `QLinearMatMul` and `QLinearConv`: its type is the result's."""


def _quantised_operands(node: OnnxNode) -> tuple[Value, ...] | None:
    x, weight = node.operand(0), node.operand(3)
    if x is None or weight is None:
        return None
    rest = (node.operand(8), *node.operands[1:3], *node.operands[4:8])
    return (x, weight, *(value for value in rest if value is not None))


_WEIGHT_SCALE = 4
"""Operand of both."""


def _check_scale(node: OnnxNode, weight: Value) -> None:
    """Refuse scales of a weight that are neither one nor one for each column."""
    found = node.length(_WEIGHT_SCALE)
    if weight.type is None or not weight.type.rank or found is None or found == 1:
        return
    columns = weight.type.shape[-1 if node.op == "QLinearMatMul" else 0]
    if isinstance(columns, int) and columns and found % columns:
        msg = (
            f"{node.op} {node.location.name!r}: {found} scales for a weight "
            f"{weight.type}: expected 1, or {columns}"
        )
        raise UnsupportedModelError(msg)


def _quantised(node: OnnxNode) -> bool:
    operands = _quantised_operands(node)
    if operands is None:
        return False
    _check_scale(node, operands[1])
    dtype = dtype_of(node.operand(_RESULT_ZERO_POINT)) or DTYPES["u8"]
    attributes: dict[str, AttrValue] = {"dtype": dtype}
    if node.op == "QLinearMatMul":
        node.emit("matmul", operands, attributes)
        return True
    attributes |= {**window_attributes(node), "groups": node.integer("group", 1)}
    node.emit("conv", operands, attributes)
    return True


QUANTIZATION_HANDLERS: Mapping[str, Handler] = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": plain("dynamic_quantize"),
    "MatMulInteger": _integer_matmul,
    "ConvInteger": _integer_convolution,
    "QLinearMatMul": _quantised,
    "QLinearConv": _quantised,
}
