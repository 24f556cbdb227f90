"""Type rules and work rules that several families share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product as combinations
from itertools import zip_longest
from operator import mul

from perfc.ir.dims import Dim, Expr, symbol
from perfc.ir.launch import NO_WORK, Work
from perfc.ir.opdef import Abstract, WorkRule
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import MAX_RANK, DType, TensorType

UNKNOWN_DIM = symbol("?")
"""A dimension that depends on data; shape inference gives it a name."""

MAX_ELEMENTS = 4096
"""Integer tensors up to this size are folded."""

OPTIONAL_INT = (int, type(None))
OPTIONAL_INTS = (tuple, type(None))
OPTIONAL_BOOL = (bool, type(None))
OPTIONAL_TEXT = (str, type(None))
OPTIONAL_FLOAT = (float, type(None))
OPTIONAL_TEXTS = (tuple, type(None))
OPTIONAL_DTYPE = (DType, type(None))

IN_PLACE = {"in_place": OPTIONAL_BOOL}
"""Whether the result is written over operand 0: one storage."""

RESULT_DTYPE = {"dtype": OPTIONAL_DTYPE}
"""Element type of result 0, where it is not the one that the rule gives: kernels
convert what they read and write."""


def converted(attributes: Record, type_: TensorType) -> TensorType:
    """Return *type_* with the element type that the attribute `dtype` asks for."""
    if attributes.get("dtype") is None:
        return type_
    return TensorType(attributes.dtype("dtype"), type_.shape, type_.space)


def check_quotient(attributes: Record, name: str, factors: int = 2) -> None:
    """Raise `VerifyError` unless an attribute is sizes, and what divides them."""
    found = attributes.dims(name)
    by = found[-1] if found else 0
    if len(found) != factors or (isinstance(by, int) and by < 1):
        msg = f"{name} = {attributes[name]!r} is no quotient of {factors} sizes"
        raise VerifyError(msg)


def no_work(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Views, shape arithmetic: nothing to compute, nothing to move."""
    return NO_WORK


def touch_all(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Read every operand once, write every result once, no arithmetic."""
    return Work(
        0,
        sum(operand.nbytes for operand in operands),
        sum(result.nbytes for result in results),
    )


def per_element(flops: int, operand: int = 0) -> WorkRule:
    """Touch all, and do so many flops for each element of one operand."""

    def work(
        attributes: Record,
        operands: Sequence[TensorType],
        results: Sequence[TensorType],
    ) -> Work:
        moved = touch_all(attributes, operands, results)
        elements = operands[operand].numel
        return Work(flops * elements, moved.bytes_read, moved.bytes_written)

    return work


def per_result(flops: int) -> WorkRule:
    """Touch all, and do so many flops for each element of result 0."""

    def work(
        attributes: Record,
        operands: Sequence[TensorType],
        results: Sequence[TensorType],
    ) -> Work:
        moved = touch_all(attributes, operands, results)
        return Work(flops * results[0].numel, moved.bytes_read, moved.bytes_written)

    return work


def declared(attributes: Record, operands: Sequence[Abstract]) -> Sequence[None]:
    """Keep the one result's declared type: there is no rule."""
    return [None]


def first_operand(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    """Give the result the type of operand 0."""
    return [Abstract(operands[0].type)]


def same_rank_axis(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    """Give the result the type of operand 0, which must have the `axis`."""
    normalize_axis(attributes.integer("axis"), operands[0].type.rank)
    return [Abstract(converted(attributes, operands[0].type))]


def promoted(types: Sequence[TensorType]) -> DType:
    """Return the widest float type of tensors, or that of the first if it is none.

    Single numbers do not widen tensors, as in PyTorch.
    """
    first = types[0].dtype
    rank = max(type_.rank for type_ in types)
    floats = [t.dtype for t in types if t.dtype.is_float and (t.rank or not rank)]
    if not first.is_float or first.scaling is not None or not floats:
        return first
    return max(floats, key=lambda dtype: dtype.bits)


def normalize_axis(axis: int, rank: int) -> int:
    """Make a negative axis count from the front."""
    if not -rank <= axis < rank:
        msg = f"axis {axis} is out of range for rank {rank}"
        raise VerifyError(msg)
    return axis % rank


def broadcast(shapes: Sequence[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    """Broadcast shapes by numpy's rules.

    A symbol against a number other than 1 is taken to be that number; two
    different symbols are taken to be equal, and the first is kept.
    """
    result: list[Dim] = []
    for dims in zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        wide: Dim = 1
        for dim in dims:
            wide = _broadcast_dim(wide, dim)
        result.append(wide)
    return tuple(reversed(result))


def _broadcast_dim(left: Dim, right: Dim) -> Dim:
    if isinstance(left, int) and left == 1:
        return right
    if (isinstance(right, int) and right == 1) or left == right:
        return left
    if isinstance(left, Expr):
        return left if isinstance(right, Expr) else right
    if isinstance(right, Expr):
        return left
    msg = f"cannot broadcast {left} with {right}"
    raise VerifyError(msg)


def require_equal(what: str, left: Dim, right: Dim) -> None:
    """Refuse two numbers that differ; symbols are given the benefit of doubt."""
    if isinstance(left, int) and isinstance(right, int) and left != right:
        msg = f"{what} differ: {left} and {right}"
        raise VerifyError(msg)


def unknown_shape(
    wanted: TensorType, *, rank: int = 0, sign: int = 1
) -> tuple[Dim, ...]:
    """Return a shape of unknown dimensions, as many as *wanted* has elements.

    With *rank*, as many more than that, or fewer.
    """
    count = wanted.numel
    if not isinstance(count, int):
        return (UNKNOWN_DIM,)
    dims = rank + sign * count
    if not 0 <= dims <= MAX_RANK:
        msg = f"{wanted} cannot be a shape: {dims} dimensions"
        raise VerifyError(msg)
    return (UNKNOWN_DIM,) * dims


def only_element(operand: Abstract) -> Dim | None:
    """Return the one element of a folded operand, or None."""
    elements = operand.elements
    return elements[0] if elements is not None and len(elements) == 1 else None


def as_int(dim: Dim) -> int:
    """Return a dimension that has to be a number."""
    if isinstance(dim, Expr):
        msg = f"expected a number, got {dim}"
        raise VerifyError(msg)
    return dim


def all_of(x: Abstract) -> list[Sequence[int]] | None:
    """Return every index of each axis, or None if the elements are not known."""
    if x.elements is None or any(isinstance(dim, Expr) for dim in x.type.shape):
        return None
    return [range(as_int(dim)) for dim in x.type.shape]


def picked(x: Abstract, picks: Sequence[Sequence[int]]) -> tuple[Dim, ...] | None:
    """Return the elements of *x* at all combinations of *picks*, one list an axis.

    None where they are not known, or too many to fold.
    """
    count = math.prod(len(axis) for axis in picks)
    axes = all_of(x)
    if x.elements is None or axes is None or count > MAX_ELEMENTS:
        return None
    steps = [math.prod(map(len, axes[axis + 1 :])) for axis in range(len(axes))]
    places = combinations(*picks)
    return tuple(x.elements[sum(map(mul, place, steps))] for place in places)
