"""Ops on quantised tensors of onnxruntime's domain `com.microsoft`.

Operands and attributes: `docs/ContribOperators.md` of onnxruntime 1.20. An op that
computes on integers as ONNX's op does on floats is that op, of integers: one kernel
that scales in registers. Scales and zero points of tensors are single numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.frontends.onnx.node import Handler, OnnxNode
from perfc.frontends.onnx.op_map.convolution import CONVOLUTION_HANDLERS
from perfc.frontends.onnx.op_map.elementwise import ELEMENTWISE_HANDLERS
from perfc.frontends.onnx.op_map.fused import channels_last
from perfc.frontends.onnx.op_map.quantization import QUANTIZATION_HANDLERS, dtype_of
from perfc.frontends.onnx.op_map.shapes import SHAPE_HANDLERS
from perfc.frontends.onnx.op_map.tensors import TENSOR_HANDLERS
from perfc.ir import DTYPES, AttrValue, Value

_BASES: Mapping[str, Handler] = {
    **CONVOLUTION_HANDLERS,
    **ELEMENTWISE_HANDLERS,
    **QUANTIZATION_HANDLERS,
    **SHAPE_HANDLERS,
    **TENSOR_HANDLERS,
}
_FLOAT = DTYPES["f32"]


def _like(op: str, data: slice) -> Handler:
    """Make the handler of what *op* is on integers; *data* picks its operands."""

    def handler(node: OnnxNode) -> bool:
        base = _BASES[op]
        if node.integer("channels_last", 0):
            base = channels_last(base, op)
        opset = node.integer("opset", node.opset)  # of QLinearSoftmax
        operands = node.operands[data]
        return base(attrs.evolve(node, op=op, operands=operands, opset=opset))

    return handler


def _where(node: OnnxNode) -> bool:
    condition, x, y = (node.operand(index) for index in (0, 1, 4))
    if condition is None or x is None or y is None:
        return False
    node.emit("where", (condition, x, y))
    return True


def _gemm(node: OnnxNode) -> bool:
    """Floats come out where no scale of the result goes in."""
    x, weight = _turned(node, 0, "transA"), _turned(node, 3, "transB")
    if x is None or weight is None:
        return False
    dtype = _FLOAT
    if node.operand(7) is not None:
        dtype = dtype_of(node.operand(8)) or DTYPES["u8"]
    rest = (node.operand(6), *node.operands[1:3], *node.operands[4:6])
    return _matmul(node, x, weight, (*rest, *node.operands[7:]), dtype)


def _turned(node: OnnxNode, index: int, flag: str) -> Value | None:
    value = node.operand(index)
    if value is None or not node.integer(flag, 0):
        return value
    return node.emit_helper("transpose", (value,), {"perm": (1, 0)})


def _matmul(
    node: OnnxNode,
    x: Value,
    weight: Value,
    rest: tuple[Value | None, ...],
    dtype: AttrValue,
) -> bool:
    """Write the matmul of integers; *rest* are bias, scales and zero points."""
    operands = (x, weight, *(value for value in rest if value is not None))
    node.emit("matmul", operands, {"dtype": dtype})
    return True


def _integers_to_float(node: OnnxNode) -> bool:
    x, weight = node.operand(0), node.operand(1)
    if x is None or weight is None:
        return False
    dtype = dtype_of(node.operand(2)) or _FLOAT
    return _matmul(node, x, weight, node.operands[2:], dtype)


def _dynamic_matmul(node: OnnxNode) -> bool:
    """Floats are quantised by their range first."""
    x, weight = node.operand(0), node.operand(1)
    if x is None or weight is None:
        return False
    stem = node.results[0]
    names = [
        node.graph.fresh_name(f"{stem}.{part}")
        for part in ("quantized", "scale", "zero_point")
    ]
    made = node.graph.add("dynamic_quantize", (x,), names, {}, location=node.location)
    quantized, *numbers = made.results
    return _matmul(node, quantized, weight, (*node.operands[2:], *numbers), _FLOAT)


def _lstm(node: OnnxNode) -> bool:
    """Weights are stored [directions, inputs, gates]: turned by views.

    The matmuls count as those of the input's type, which reads more bytes.
    """
    x, *weights = (node.operand(index) for index in range(3))
    if x is None or None in weights:
        return False
    turned = [
        node.emit_helper("transpose", (weight,), {"perm": (0, 2, 1)})
        for weight in weights
        if weight is not None
    ]
    rest = (value for value in node.operands[3:8] if value is not None)
    node.emit("recurrent", (x, *turned, *rest), {"kind": "lstm"})
    return True


def _packed_matmul(node: OnnxNode) -> bool:
    """Weights of a few bits, packed into bytes; scales, zero points and a bias."""
    inputs, features = node.integer("K", 0), node.integer("N", 0)
    if inputs < 1 or features < 1 or not node.integer("transB", 1):
        return False
    attributes: dict[str, AttrValue] = {
        "inputs": inputs,
        "features": features,
        "bits": node.integer("bits", 4),
    }
    node.emit("packed_linear", attributes=attributes)
    return True


_FIRST, _PAIR = slice(1), slice(0, 4, 3)

FUSED_QUANTIZATION_HANDLERS: Mapping[str, Handler] = {
    f"com.microsoft::{name}": handler
    for name, handler in {
        "DequantizeLinear": QUANTIZATION_HANDLERS["DequantizeLinear"],
        "DynamicQuantizeLSTM": _lstm,
        "DynamicQuantizeMatMul": _dynamic_matmul,
        "MatMulBnb4": _packed_matmul,
        "MatMulIntegerToFloat": _integers_to_float,
        "MatMulNBits": _packed_matmul,
        "QGemm": _gemm,
        "QLinearAdd": _like("Add", _PAIR),
        "QLinearAveragePool": _like("AveragePool", _FIRST),
        "QLinearConcat": _like("Concat", slice(2, None, 3)),
        "QLinearConv": _like("QLinearConv", slice(None)),
        "QLinearGlobalAveragePool": _like("GlobalAveragePool", _FIRST),
        "QLinearLeakyRelu": _like("LeakyRelu", _FIRST),
        "QLinearMul": _like("Mul", _PAIR),
        "QLinearReduceMean": _like("ReduceMean", _FIRST),
        "QLinearSigmoid": _like("Sigmoid", _FIRST),
        "QLinearSoftmax": _like("Softmax", _FIRST),
        "QLinearWhere": _where,
        "QuantizeLinear": QUANTIZATION_HANDLERS["QuantizeLinear"],
    }.items()
}
"""Op type with its domain to the function that writes it."""
