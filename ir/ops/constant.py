"""Constants and shape queries: they cost nothing and fold away."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfc.ir.dims import Dim, ceil_div, maximum
from perfc.ir.opdef import Abstract, OpDef, Trait, named
from perfc.ir.ops import rules
from perfc.ir.record import AttrValue, Record
from perfc.ir.support import VerifyError
from perfc.ir.types import I64, MAX_RANK, DType, MemorySpace, TensorType

_FINEST = 1024
"""Constants of shape arithmetic are halves, quarters and so on, down to this."""


def _infer_constant(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    shape = attributes.dims("shape")
    space = MemorySpace.HOST if attributes.flag("host") else MemorySpace.DEVICE
    type_ = TensorType(attributes.dtype("dtype"), shape, space).checked()
    if attributes.get("elements") is None:
        return [_repeated(type_, attributes.get("value"))]
    elements = attributes.dims("elements")
    if len(elements) != type_.numel:
        rules.require_equal(f"elements and size of {type_}", len(elements), type_.numel)
    return [Abstract(type_, elements)]


def _repeated(type_: TensorType, value: AttrValue) -> Abstract:
    """Return a few floats that all are one number, which shape arithmetic scales by.

    Products of other fractions than these are rounded, and may end below a size.
    """
    if not isinstance(value, float) or not math.isfinite(value):
        return Abstract(type_)
    numerator, denominator = value.as_integer_ratio()
    if type_.numel > MAX_RANK or denominator > _FINEST:
        return Abstract(type_)
    numerators = (numerator,) * type_.numel
    if denominator == 1:
        return Abstract(type_, numerators)
    return Abstract(type_, None, (numerators, denominator))


CONSTANT = OpDef(
    name="constant",
    arity=(0, 0),
    infer=_infer_constant,
    work=rules.no_work,
    attributes={
        "dtype": (DType,),
        "shape": (tuple,),
        "elements": rules.OPTIONAL_INTS,
        "value": (float, type(None)),
        "host": rules.OPTIONAL_BOOL,  # a tensor that the model makes there
    },
    traits=frozenset({Trait.FREE}),
    summary="a constant; small integer ones keep their elements, floats one value",
)


def _infer_shape(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    shape = operands[0].type.shape
    start = attributes.integer("start", 0)
    dims = shape[start : attributes.integer("end", len(shape))]
    return [Abstract(TensorType(I64, (len(dims),)), dims)]


SHAPE = OpDef(
    name="shape",
    arity=(1, 1),
    infer=_infer_shape,
    work=rules.no_work,
    attributes={"start": rules.OPTIONAL_INT, "end": rules.OPTIONAL_INT},
    traits=frozenset({Trait.FREE}),
    summary="the dimensions of a tensor, as a tensor",
)


def _infer_size(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    numel: Dim = operands[0].type.numel
    return [Abstract(TensorType(I64, ()), (numel,))]


SIZE = OpDef(
    name="size",
    arity=(1, 1),
    infer=_infer_size,
    work=rules.no_work,
    traits=frozenset({Trait.FREE}),
    summary="the number of elements of a tensor",
)


def _infer_fill(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    dtype, shape = attributes.dtype("dtype"), operands[0].elements
    if shape is None:
        return [Abstract(TensorType(dtype, rules.unknown_shape(operands[0].type)))]
    type_ = TensorType(dtype, shape).checked()
    numel, value = type_.numel, attributes.get("value")
    if (
        isinstance(numel, int)
        and numel <= rules.MAX_ELEMENTS
        and isinstance(value, int)
    ):
        return [Abstract(type_, (int(value),) * numel)]
    return [Abstract(type_)]


FILL = OpDef(
    name="fill",
    arity=(1, 1),
    infer=_infer_fill,
    work=lambda attributes, operands, results: rules.touch_all(attributes, (), results),
    attributes={"dtype": (DType,), "value": (int, float, bool, type(None))},
    summary="a tensor of one repeated value, of a computed shape",
)


def _infer_range(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    dtype = operands[0].type.dtype
    bounds = [operand.elements for operand in operands]
    if any(b is None or len(b) != 1 for b in bounds):
        return [Abstract(TensorType(dtype, (rules.UNKNOWN_DIM,)))]
    start, limit, delta = (b[0] for b in bounds if b is not None)
    if delta == 0:
        msg = "the step of a range is 0"
        raise VerifyError(msg)
    count = maximum(ceil_div(limit - start, delta), 0)
    elements = None
    small = isinstance(count, int) and count <= rules.MAX_ELEMENTS
    if isinstance(count, int) and small and not attributes.flag("written"):
        elements = tuple(start + i * delta for i in range(count))
    return [Abstract(TensorType(dtype, (count,)), elements)]


RANGE = OpDef(
    name="range",
    arity=(3, 3),
    infer=_infer_range,
    work=lambda attributes, operands, results: rules.touch_all(attributes, (), results),
    attributes={
        "written": rules.OPTIONAL_BOOL
    },  # by a kernel: it is no shape arithmetic
    summary="start, limit, step: an arithmetic progression",
)

OPS = named(CONSTANT, SHAPE, SIZE, FILL, RANGE)
