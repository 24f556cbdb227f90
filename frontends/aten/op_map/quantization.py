"""ATen ops on few bits, and those that PyTorch's quantizers write around others.

`quantized_decomposed` is what `convert_pt2e` leaves in an exported program; `torchao`
writes its own, whose scales are of blocks of the sizes that it says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler, Misfit
from perfc.frontends.aten.template import Operand
from perfc.ir import DTYPES, AttrValue

_F32 = DTYPES["f32"]


def _integers(node: AtenNode) -> None:
    """Sums stay integers: scales are undone by others."""
    operands = (node.tensor("self"), node.tensor("mat2"))
    node.emit("matmul", operands, {"dtype": node.result().dtype})


def _packed(bits: int, scales: str) -> Handler:
    """Write weights of few bits, in an order of the kernel's own, and their scales."""

    def handler(node: AtenNode) -> None:
        x = node.tensor("self")
        inputs, features = x.type.shape[-1], node.result().shape[-1]
        if not isinstance(inputs, int) or not isinstance(features, int):
            msg = f"a weight of {inputs} x {features}"
            raise Misfit(msg)
        attributes: dict[str, AttrValue] = {
            "inputs": inputs,
            "features": features,
            "bits": bits,
        }
        operands = (x, node.tensor("mat2"), node.tensor(scales))
        node.emit("packed_linear", operands, attributes)

    return handler


def _of_tensor(op: str) -> Handler:
    """Write a conversion by one scale, a number or a tensor."""

    def handler(node: AtenNode) -> None:
        scale = node.value("scale", _F32)
        _convert(node, op, scale, {})

    return handler


def _of_channels(op: str) -> Handler:
    """Write a conversion by a scale for each slice along an axis."""

    def handler(node: AtenNode) -> None:
        _convert(node, op, node.tensor("scales"), {"axis": node.integer("axis")})

    return handler


def _of_rows(op: str) -> Handler:
    """Write a conversion by a scale for each row, or group of one."""

    def handler(node: AtenNode) -> None:
        _convert(node, op, node.tensor("scales"), {})

    return handler


def _affine(op: str) -> Handler:
    """Write torchao's conversion: scales are of blocks."""

    def handler(node: AtenNode) -> None:
        x, scale = node.tensor("input"), node.tensor("scale")
        sizes = node.integers("block_size", ())
        blocks = [
            math.ceil(dim / size)
            for dim, size in zip(x.type.shape, sizes, strict=False)
            if isinstance(dim, int) and size
        ]
        count = scale.type.numel
        known = isinstance(count, int) and len(blocks) == x.type.rank
        if known and math.prod(blocks) != count:
            msg = f"{count} scales for {math.prod(blocks)} blocks"
            raise Misfit(msg)
        _convert(node, op, scale, {})

    return handler


def _convert(
    node: AtenNode, op: str, scale: Operand, attributes: Mapping[str, AttrValue]
) -> None:
    """Write a conversion; zero points go with their scales, if they are tensors."""
    names = ("zero_point", "zero_points")
    found = [
        value
        for name in names
        if isinstance(value := node.arguments.get(name), Operand)
    ]
    said = {"dtype": node.result().dtype, **attributes}
    node.emit(op, (node.tensor("input"), scale, *found), said)


QUANTIZATION_HANDLERS: Mapping[str, Handler] = {
    "aten._int_mm": _integers,
    "aten._weight_int4pack_mm": _packed(4, "qScaleAndZeros"),
    "aten._weight_int8pack_mm": _packed(8, "scales"),
    **{
        f"quantized_decomposed.{op}_per_{part}": handler(op)
        for op in ("quantize", "dequantize")
        for part, handler in (
            ("channel", _of_channels),
            ("channel_group", _of_rows),
            ("tensor", _of_tensor),
            ("token", _of_rows),
        )
    },
    "torchao.dequantize_affine": _affine("dequantize"),
    "torchao.quantize_affine": _affine("quantize"),
}
"""Namespace and name of an op to the function that writes it."""
