"""Between floats and integers with a scale."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.ir.dims import Dim, ceil_div, product
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops import rules
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import F8E4M3, F32, U8, DType, TensorType


def _infer_quantize(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, dtype = operands[0].type, attributes.dtype("dtype")
    _check_scale(attributes, x, operands[1].type)
    _check_zero_point(operands)
    made = [TensorType(dtype, x.shape, x.space)]
    if attributes.flag("transposed"):
        made.append(TensorType(dtype, _turned(x)))
    return list(map(Abstract, made))


def _check_scale(attributes: Record, x: TensorType, scale: TensorType) -> None:
    """Refuse scales that are of no part of a tensor.

    One is of all of it, a list of the slices along `axis`, and a tensor of as many axes
    of blocks along it (`QuantizeLinear` of ONNX).
    """
    if scale.numel == 1 or attributes.get("axis") is None:
        return
    axis = attributes.integer("axis")
    if not -x.rank <= axis < x.rank:
        expected = f"an axis of {x}"
    elif scale.rank == 1:
        expected = str(x.shape[axis])
        if _agree(scale.shape, (x.shape[axis],)):
            return
    else:
        block = attributes.get("block_size")
        sized = isinstance(block, int) and block > 0
        each = ceil_div(x.shape[axis], block) if sized else 1
        wanted = list(x.shape)
        wanted[axis] = each
        expected = " x ".join(map(str, wanted))
        if _agree(scale.shape, tuple(wanted)):
            return
        if block is None and _spreads(scale.shape, x.shape):
            return
    msg = f"scale {scale} is of no part of {x} along axis {axis}: expected {expected}"
    raise VerifyError(msg)


def _check_zero_point(operands: Sequence[Abstract]) -> None:
    """Refuse zero points that are not one of each scale, or one of all."""
    scale, *zeros = (one.type for one in operands[1:])
    if not zeros:
        return
    (zero,) = zeros
    if zero.numel == 1 or _agree(zero.shape, scale.shape):
        return
    msg = f"zero points {zero} are not of scales {scale}: expected as many"
    raise VerifyError(msg)


def _spreads(found: tuple[Dim, ...], over: tuple[Dim, ...]) -> bool:
    """Whether a shape is broadcast over another of as many axes."""
    return len(found) == len(over) and all(
        left in (1, right)
        for left, right in zip(found, over, strict=True)
        if isinstance(left, int) and isinstance(right, int)
    )


def _agree(found: tuple[Dim, ...], wanted: tuple[Dim, ...]) -> bool:
    """Whether shapes are the same, as far as they are known."""
    return len(found) == len(wanted) and all(
        left == right
        for left, right in zip(found, wanted, strict=True)
        if isinstance(left, int) and isinstance(right, int)
    )


def _turned(x: TensorType) -> tuple[Dim, ...]:
    if not x.rank:
        msg = f"{x} has no rows to transpose"
        raise VerifyError(msg)
    return (x.shape[-1], product(x.shape[:-1]))


def _infer_dequantize(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    """Floats are as wide as the scale, unless said otherwise."""
    x, dtype = operands[0].type, operands[1].type.dtype
    _check_scale(attributes, x, operands[1].type)
    _check_zero_point(operands)
    if attributes.get("dtype") is not None:
        dtype = attributes.dtype("dtype")
    return [Abstract(TensorType(dtype, x.shape, x.space))]


_ATTRIBUTES = {"axis": rules.OPTIONAL_INT, "block_size": rules.OPTIONAL_INT}

QUANTIZE = OpDef(
    name="quantize",
    arity=(2, 3),
    results=None,
    infer=_infer_quantize,
    work=rules.per_element(3),
    attributes={**_ATTRIBUTES, "dtype": (DType,), "transposed": rules.OPTIONAL_BOOL},
    summary="x, scale, zero point: x / scale rounded, shifted and cut to few bits",
)
DEQUANTIZE = OpDef(
    name="dequantize",
    arity=(2, 3),
    infer=_infer_dequantize,
    work=rules.per_element(2),
    attributes={**_ATTRIBUTES, "dtype": (DType, type(None))},
    summary="x, scale, zero point: (x - zero point) * scale",
)


def _check_last(attributes: Record, x: TensorType) -> None:
    """Refuse scales along another axis than the last, and of empty blocks."""
    if not x.rank or attributes.integer("axis") not in (-1, x.rank - 1):
        msg = f"scales are found along the last axis, not {attributes['axis']} of {x}"
        raise VerifyError(msg)
    block = attributes.get("block_size")
    if isinstance(block, int) and block < 1:
        msg = f"a scale is of a block of {block} elements, expected 1 or more"
        raise VerifyError(msg)


def _infer_dynamic(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x = operands[0].type
    if attributes.get("axis") is None:
        numbers = TensorType(F32, ()), TensorType(U8, ())
        return list(map(Abstract, (TensorType(U8, x.shape), *numbers)))
    _check_last(attributes, x)
    block = attributes.get("block_size")
    scales = ceil_div(x.shape[-1], block) if isinstance(block, int) else 1
    dtype = F8E4M3 if attributes.get("dtype") is None else attributes.dtype("dtype")
    scale = F32
    if attributes.get("scale_dtype") is not None:
        scale = attributes.dtype("scale_dtype")
    found = [TensorType(dtype, x.shape), TensorType(scale, (*x.shape[:-1], scales))]
    if attributes.flag("transposed"):
        columns, rows = _turned(x)
        count = ceil_div(rows, block) if isinstance(block, int) else 1
        found += [
            TensorType(dtype, (columns, rows)),
            TensorType(scale, (columns, count)),
        ]
    return list(map(Abstract, found))


DYNAMIC_QUANTIZE = OpDef(
    name="dynamic_quantize",
    arity=(1, 1),
    results=None,
    infer=_infer_dynamic,
    work=rules.per_element(5),
    attributes={
        **_ATTRIBUTES,
        "dtype": rules.OPTIONAL_DTYPE,
        "scale_dtype": rules.OPTIONAL_DTYPE,
        "transposed": rules.OPTIONAL_BOOL,
    },
    summary="x in 8 bits by its range; with `axis`, of each row or block, and scales",
)


def _infer_amax(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    x = operands[0].type
    if attributes.get("axis") is None:
        return [Abstract(TensorType(F32, ()))]
    _check_last(attributes, x)
    block = attributes.get("block_size")
    scales = ceil_div(x.shape[-1], block) if isinstance(block, int) else 1
    return [Abstract(TensorType(F32, (*x.shape[:-1], scales)))]


AMAX = OpDef(
    name="amax",
    arity=(1, 1),
    infer=_infer_amax,
    work=rules.per_element(2),
    attributes=_ATTRIBUTES,
    summary="largest magnitude of x; with `axis`, of each row or block: for its scale",
)

OPS = named(QUANTIZE, DEQUANTIZE, DYNAMIC_QUANTIZE, AMAX)
