"""Ops between element types."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.ir.dims import Dim, Expr
from perfc.ir.opdef import Abstract, OpDef, Trait, named
from perfc.ir.ops import rules
from perfc.ir.ops.ratios import rounded, truncated
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import MAX_RANK, DType, TensorType


def _infer_cast(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    x = operands[0]
    dtype = attributes.dtype("dtype")
    type_ = TensorType(dtype, x.type.shape, x.type.space)
    if x.ratio is None:
        return [Abstract(type_, _cast_elements(x, dtype))]
    if dtype.is_float:
        return [Abstract(type_, None, x.ratio)]
    whole = dtype.kind in ("int", "uint")
    return [rounded(type_, x, truncated) if whole else Abstract(type_)]


def _cast_elements(x: Abstract, dtype: DType) -> tuple[Dim, ...] | None:
    """Keep elements; as floats only a shape's, which scales multiply and round."""
    if dtype.kind == "bool":
        known = x.elements and not any(isinstance(e, Expr) for e in x.elements)
        return tuple(int(bool(e)) for e in x.elements or ()) if known else None
    if dtype.kind in ("int", "uint"):
        return x.elements
    small = dtype.is_float and x.elements is not None and len(x.elements) <= MAX_RANK
    return x.elements if small else None


CAST = OpDef(
    name="cast",
    arity=(1, 1),
    infer=_infer_cast,
    work=rules.touch_all,
    attributes={
        "dtype": (DType,),
        "stream": rules.OPTIONAL_TEXT,
        "cached": rules.OPTIONAL_BOOL,  # autocast keeps it to the end of forward
    },
    traits=frozenset({Trait.CONVERTS, Trait.ELEMENTWISE, Trait.KEEPS_SHAPE}),
    summary="another element type, on a `stream` of its own if it says so",
)


def _infer_cast_like(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, like = operands
    dtype = like.type.dtype
    return [Abstract(TensorType(dtype, x.type.shape), _cast_elements(x, dtype))]


def _infer_bit_cast(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    """Keep all bits: elements of another width are more or fewer of the last axis."""
    x, dtype = operands[0].type, attributes.dtype("dtype")
    if x.dtype.bits == dtype.bits:
        return [Abstract(TensorType(dtype, x.shape, x.space))]
    if not x.rank:
        rules.require_equal(f"bits of {x.dtype} and {dtype}", x.dtype.bits, dtype.bits)
    bits = x.shape[-1] * x.dtype.bits
    if isinstance(bits, int) and bits % dtype.bits:
        msg = f"bits of the last axis of {x}: {bits} are no whole number of {dtype}"
        raise VerifyError(msg)
    shape = (*x.shape[:-1], bits // dtype.bits)
    return [Abstract(TensorType(dtype, shape, x.space))]


BIT_CAST = OpDef(
    name="bit_cast",
    arity=(1, 1),
    infer=_infer_bit_cast,
    work=rules.no_work,
    attributes={"dtype": (DType,)},
    view=0,
    traits=frozenset({Trait.KEEPS_ORDER}),
    summary="the same bits, read as another element type",
)


CAST_LIKE = OpDef(
    name="cast_like",
    arity=(2, 2),
    infer=_infer_cast_like,
    work=rules.touch_all,
    traits=frozenset({Trait.CONVERTS, Trait.KEEPS_SHAPE}),
    summary="the element type of operand 1",
)

OPS = named(CAST, CAST_LIKE, BIT_CAST)
