"""Slices and gathers."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfc.ir.dims import Dim, Expr
from perfc.ir.errors import VerifyError
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef
from perfc.ir.ops.rules import OPTIONAL_INT, UNKNOWN_DIM, no_work, normalize_axis
from perfc.ir.record import Record
from perfc.ir.types import TensorType

_FAR = 2**31
"""ONNX writes `to the end` as a huge number; anything this large means that."""


def _clamp(position: Dim, size: Dim) -> Dim:
    """Resolve a slice bound; a bound that needs a symbol's value stays as it is."""
    if isinstance(position, int):
        if position >= _FAR:
            return size
        if position < 0:
            position = 0 if position <= -_FAR else position + size
    if isinstance(position, int) and isinstance(size, int):
        return max(0, min(position, size))
    return position


def _infer_slice(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x = operands[0]
    starts, ends, axes, steps = (operand.elements for operand in operands[1:])
    shape = list(x.type.shape)
    if starts is None or ends is None or axes is None or steps is None:
        touched = range(len(shape)) if axes is None else map(_as_int, axes)
        for axis in touched:
            shape[normalize_axis(axis, len(shape))] = UNKNOWN_DIM
        return [Abstract(attrs.evolve(x.type, shape=tuple(shape)))]
    if not len(starts) == len(ends) == len(axes) == len(steps):
        msg = "starts, ends, axes and steps of a slice differ in number"
        raise VerifyError(msg)
    elements = x.elements if len(shape) == 1 else None
    for start, end, axis_dim, step_dim in zip(starts, ends, axes, steps, strict=True):
        axis = normalize_axis(_as_int(axis_dim), len(shape))
        step = _as_int(step_dim)
        if step == 0:
            msg = "a slice step is 0"
            raise VerifyError(msg)
        if elements is not None and isinstance(start, int) and isinstance(end, int):
            elements = elements[slice(start, end, step)]
        else:
            elements = None
        shape[axis] = _slice_size(start, end, step, shape[axis])
    return [Abstract(attrs.evolve(x.type, shape=tuple(shape)), elements)]


def _slice_size(start: Dim, end: Dim, step: int, size: Dim) -> Dim:
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return len(range(*slice(start, end, step).indices(size)))
    if step < 0:
        return UNKNOWN_DIM
    return -((_clamp(start, size) - _clamp(end, size)) // step)


def _as_int(dim: Dim) -> int:
    if isinstance(dim, Expr):
        msg = f"expected a number, got {dim}"
        raise VerifyError(msg)
    return dim


SLICE = OpDef(
    name="slice",
    arity=(5, 5),
    infer=_infer_slice,
    work=no_work,
    view=0,
    summary="x, starts, ends, axes, steps: a range of each named axis, not copied",
)


def _gather_work(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Read the indices and only the gathered elements; write the result."""
    out = results[0].nbytes
    return Work(0, out + operands[1].nbytes, out)


def _infer_gather(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, indices = operands
    axis = normalize_axis(attributes.integer("axis"), x.type.rank)
    shape = x.type.shape
    result = (*shape[:axis], *indices.type.shape, *shape[axis + 1 :])
    elements: tuple[Dim, ...] | None = None
    if x.elements is not None and indices.elements is not None and len(shape) == 1:
        picks = [_as_int(i) for i in indices.elements]
        if any(not -len(x.elements) <= i < len(x.elements) for i in picks):
            msg = f"index out of range: {picks} into {len(x.elements)} elements"
            raise VerifyError(msg)
        elements = tuple(x.elements[i] for i in picks)
    return [Abstract(TensorType(x.type.dtype, result), elements)]


GATHER = OpDef(
    name="gather",
    arity=(2, 2),
    infer=_infer_gather,
    work=_gather_work,
    attributes={"axis": (int,)},
    summary="slices of x along one axis, named by indices",
)


def _infer_gather_elements(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    return [Abstract(TensorType(operands[0].type.dtype, operands[1].type.shape))]


GATHER_ELEMENTS = OpDef(
    name="gather_elements",
    arity=(2, 2),
    infer=_infer_gather_elements,
    work=_gather_work,
    attributes={"axis": (int,)},
    summary="one element of x per index",
)


def _infer_gather_nd(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, indices = operands[0].type, operands[1].type
    batch = attributes.integer("batch_dims", 0)
    depth = indices.shape[-1] if indices.rank else 0
    fits = isinstance(depth, int) and batch + depth <= x.rank
    if not isinstance(depth, int) or not fits or not 0 <= batch < indices.rank:
        msg = f"indices {indices} do not fit {x} with {batch} batch dimensions"
        raise VerifyError(msg)
    shape = (*indices.shape[:-1], *x.shape[batch + depth :])
    return [Abstract(TensorType(x.dtype, shape))]


GATHER_ND = OpDef(
    name="gather_nd",
    arity=(2, 2),
    infer=_infer_gather_nd,
    work=_gather_work,
    attributes={"batch_dims": OPTIONAL_INT},
    summary="slices of x named by index tuples",
)

OPS = (SLICE, GATHER, GATHER_ELEMENTS, GATHER_ND)
