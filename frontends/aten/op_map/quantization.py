"""ATen ops on few bits, and those that PyTorch's quantizers write around others.

`quantized_decomposed` is what `convert_pt2e` leaves in an exported program; `torchao`
writes its own, whose scales are of blocks of the sizes that it says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler, Misfit
from perfc.frontends.aten.template import Operand
from perfc.ir import DTYPES, AttrValue, Record, TensorType
from perfc.ir.dims import Dim
from perfc.ir.ops.rules import as_int

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
    def handler(node: AtenNode) -> None:
        scale = node.value("scale", _F32)
        _convert(node, op, scale, {})

    return handler


def _of_channels(op: str) -> Handler:
    def handler(node: AtenNode) -> None:
        _convert(node, op, node.tensor("scales"), {"axis": node.integer("axis")})

    return handler


def _of_rows(op: str) -> Handler:
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


def _scales(node: AtenNode) -> None:
    """Write what finds scales and zero points: two ranges, and what makes them numbers.

    Both read the tensor; what follows works on as many numbers as there are scales, a
    kernel a step, as PyTorch's own functions of these names do (`determine_qparams`).
    """
    (x, *_) = node.operands
    low, high = (_range(node, x, kind) for kind in ("min", "max"))
    (zeros,) = node.helper("fill", _shape(node, low), {"dtype": _F32, "value": 0.0})
    (low,) = node.helper("minimum", (low, zeros))
    (high,) = node.helper("maximum", (high, zeros))
    if _is_symmetric(node):
        (low,) = node.helper("neg", (low,))
        (span,) = node.helper("maximum", (low, high))
    else:
        (span,) = node.helper("sub", (high, low))
    steps = node.scalar(255.0, span.type.dtype)
    (scale,) = node.helper("div", (span, steps))
    (scale,) = node.helper("clip", (scale,), {"min": 1e-9})
    _number(node, 0, scale)
    if len(node.results) < 2:
        return
    if _is_symmetric(node):
        node.emit(
            "fill",
            _shape(node, scale, node.result(1)),
            {"dtype": node.result(1).dtype, "value": 0.0},
            results=(1,),
        )
        return
    (zero,) = node.helper("div", (low, scale))
    (zero,) = node.helper("round", (zero,))
    (zero,) = node.helper("clip", (zero,), {"min": -128.0, "max": 127.0})
    _number(node, 1, zero)


def _is_symmetric(node: AtenNode) -> bool:
    """Whether zero is kept in the middle: zero points are all the same."""
    told = "SYMMETRIC" in node.text("mapping_type")[:9]
    return told or node.name in _SYMMETRIC


_SYMMETRIC = frozenset(
    ("choose_qparams_symmetric", "choose_qparams_per_token", "choose_scale_float8")
)


def _shape(
    node: AtenNode, like: Operand, said: TensorType | None = None
) -> tuple[Operand]:
    return (node.listed((said or like.type).shape),)


def _number(node: AtenNode, index: int, found: Operand) -> None:
    """Let a result be what was found, of its type and shape."""
    wanted = node.result(index)
    if found.type.dtype != wanted.dtype:
        (found,) = node.helper("cast", (found,), {"dtype": wanted.dtype})
    if found.type.shape != wanted.shape:
        listed = node.listed(wanted.shape)
        (found,) = node.helper("reshape", (found, listed), {"view": True})
    node.alias(index, found)


def _range(node: AtenNode, x: Operand, kind: str) -> Operand:
    """Reduce each part of a tensor that has a scale of its own."""
    attributes: dict[str, AttrValue] = {"kind": kind, "keepdims": True}
    if "per_token" in node.name:
        return node.helper("reduce", (x,), {**attributes, "axes": (x.rank - 1,)})[0]
    sizes = node.integers("block_size", ())
    if not sizes:
        return node.helper("reduce", (x,), {"kind": kind})[0]
    if len(sizes) != x.rank:
        msg = f"blocks of {len(sizes)} axes of {x.type}"
        raise Misfit(msg)
    whole = [
        axis
        for axis, (dim, size) in enumerate(zip(x.type.shape, sizes, strict=True))
        if size == dim
    ]
    if all(size == 1 or axis in whole for axis, size in enumerate(sizes)):
        return node.helper("reduce", (x,), {**attributes, "axes": tuple(whole)})[0]
    parts, inner = _blocks(x, sizes)
    listed = node.listed(parts)
    (x,) = node.helper("reshape", (x, listed), {"view": True})
    return node.helper("reduce", (x,), {"kind": kind, "axes": inner})[0]


def _blocks(
    x: Operand, sizes: tuple[int, ...]
) -> tuple[tuple[Dim, ...], tuple[int, ...]]:
    """Return the shape of a tensor whose axes are blocks and what is in them."""
    parts, inner = list[Dim](), list[int]()
    for dim, size in zip(x.type.shape, sizes, strict=True):
        if size < 1 or (isinstance(dim, int) and dim % size):
            msg = f"blocks of {size} of {dim}"
            raise Misfit(msg)
        if size == 1:
            parts.append(dim)
            continue
        parts += [dim // size, size]
        inner.append(len(parts) - 1)
    return tuple(parts), tuple(inner)


def _floats_of_bytes(op: str) -> Handler:
    """Write torchao's conversion to or from 8-bit floats."""

    def handler(node: AtenNode) -> None:
        said = {"dtype": node.result().dtype}
        node.emit(op, (node.tensor("tensor"), node.tensor("scale")), said)

    return handler


def _of_each_row(node: AtenNode) -> None:
    """Write fbgemm's kernel that quantises rows to 8-bit floats; scales are a list."""
    (x, *_) = node.operands
    attributes: dict[str, AttrValue] = {"axis": -1, "dtype": node.result().dtype}
    numbers, scale = node.helper("dynamic_quantize", (x,), attributes, count=2)
    node.alias(0, numbers)
    _number(node, 1, scale)


def _of_whole(node: AtenNode) -> None:
    """Write fbgemm's kernels that find a tensor's scale, and quantise by it."""
    (x, *_) = node.operands
    (scale,) = node.helper("amax", (x,))
    node.emit("quantize", (x, scale), {"dtype": node.result().dtype})
    _number(node, 1, scale)


def _product(node: AtenNode) -> None:
    """Write fbgemm's product of rows of 8 bits: of the weight, too; scales follow."""
    attributes: dict[str, AttrValue] = {
        "dtype": node.result().dtype,
        "weight_is_nk": True,
    }
    node.emit("matmul", node.operands, attributes)


def _beside_halves(node: AtenNode) -> None:
    """Write fbgemm's product of a weight of 4 bits, two in a byte."""
    x, weight, *rest = node.operands
    features, half = weight.type.shape
    attributes: dict[str, AttrValue] = {
        "inputs": 2 * as_int(half),
        "features": as_int(features),
        "bits": 4,
    }
    node.emit("packed_linear", (x, weight, *rest), attributes)


def _scaled_rows(node: AtenNode) -> None:
    """Write torchao's lookup in a table of 8 bits with one scale."""
    weight, indices = node.tensor("qweight"), node.tensor("indices")
    rows, dim = weight.type.shape
    mode = node.integer("mode")
    if mode:
        msg = f"mode {mode}"
        raise Misfit(msg)
    attributes: dict[str, AttrValue] = {
        "tables": (Record({"rows": rows, "dim": dim}),),
        "mode": "sum",
        "has_offsets": True,
        "include_last_offset": node.flag("include_last_offset"),
        "out_dtype": node.result().dtype,
    }
    node.emit("embedding_bag", (weight, indices, node.tensor("offsets")), attributes)


_OF_FBGEMM: Mapping[str, Handler] = {
    **dict.fromkeys(
        (
            *("f8f8bf16", "f8f8bf16_rowwise", "f8f8bf16_tensorwise"),
            *("f8f8bf16_cublas", "f8f8bf16_blockwise", "i8i8bf16"),
        ),
        _product,
    ),
    "bf16i4bf16_rowwise": _beside_halves,
    "quantize_fp8_per_row": _of_each_row,
    "quantize_fp8_per_tensor": _of_whole,
}
"""Ops of fbgemm_gpu's experimental part, which is called mslk today."""

QUANTIZATION_HANDLERS: Mapping[str, Handler] = {
    "aten._int_mm": _integers,
    "aten._weight_int4pack_mm": _packed(4, "qScaleAndZeros"),
    "aten._weight_int4pack_mm_for_cpu": _packed(4, "qScaleAndZeros"),
    "aten._weight_int4pack_mm_with_scales_and_zeros": _packed(4, "qScale"),
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
    **{
        f"{namespace}.{name}": handler
        for namespace in ("fbgemm", "mslk")
        for name, handler in _OF_FBGEMM.items()
    },
    **{
        f"quantized_decomposed.{name}": _scales
        for name in (
            *("choose_qparams", "choose_qparams_symmetric", "choose_qparams_per_token"),
            "choose_qparams_per_token_asymmetric",
            "_choose_qparams_per_token_asymmetric_impl",
        )
    },
    "torchao._scaled_embedding_bag": _scaled_rows,
    "torchao.choose_qparams_affine": _scales,
    "torchao.choose_scale_float8": _scales,
    "torchao.dequantize_affine_float8_non_decomposed": _floats_of_bytes("dequantize"),
    "torchao.quantize_affine_float8_non_decomposed": _floats_of_bytes("quantize"),
    "torchao.dequantize_affine": _affine("dequantize"),
    "torchao.quantize_affine": _affine("quantize"),
}
"""Namespace and name of an op to the function that writes it."""
