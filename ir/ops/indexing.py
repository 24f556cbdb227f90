"""Slices, gathers and scatters."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfc.ir.dims import Dim
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, Trait, named
from perfc.ir.ops.rules import (
    OPTIONAL_BOOL,
    OPTIONAL_DTYPE,
    OPTIONAL_INT,
    OPTIONAL_INTS,
    OPTIONAL_TEXT,
    UNKNOWN_DIM,
    all_of,
    as_int,
    broadcast,
    no_work,
    normalize_axis,
    picked,
    touch_all,
)
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import TensorType

_FAR = 10**9
"""A bound this far means `to the end`: ONNX writes 2**31 - 1 or 2**63 - 1 for it,
and JAX 10**9."""


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


def _bounds(x: Abstract, operands: Sequence[Abstract]) -> list[tuple[Dim, ...] | None]:
    """Return starts, ends, axes and steps; the first axes and 1 if not given."""
    bounds = [operand.elements for operand in operands]
    count = operands[0].type.numel
    if not isinstance(count, int):
        return [*bounds, *[None] * (4 - len(bounds))]
    if count > x.type.rank:
        msg = f"{operands[0].type} are not the starts of a slice of {x.type}"
        raise VerifyError(msg)
    defaults: list[tuple[Dim, ...]] = [tuple(range(count)), (1,) * count]
    return bounds + defaults[len(bounds) - 2 :]


def _infer_slice(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x = operands[0]
    starts, ends, axes, steps = _bounds(x, operands[1:])
    shape = list(x.type.shape)
    if starts is None or ends is None or axes is None or steps is None:
        touched = range(len(shape)) if axes is None else map(as_int, axes)
        for axis in touched:
            shape[normalize_axis(axis, len(shape))] = UNKNOWN_DIM
        return [Abstract(attrs.evolve(x.type, shape=tuple(shape)))]
    if not len(starts) == len(ends) == len(axes) == len(steps):
        msg = "starts, ends, axes and steps of a slice differ in number"
        raise VerifyError(msg)
    picks = all_of(x)
    for start, end, axis_dim, step_dim in zip(starts, ends, axes, steps, strict=True):
        axis = normalize_axis(as_int(axis_dim), len(shape))
        step = as_int(step_dim)
        if step == 0:
            msg = "a slice step is 0"
            raise VerifyError(msg)
        if picks is not None and isinstance(start, int) and isinstance(end, int):
            picks[axis] = picks[axis][slice(start, end, step)]
        else:
            picks = None
        shape[axis] = _slice_size(start, end, step, shape[axis])
    elements = None if picks is None else picked(x, picks)
    return [Abstract(attrs.evolve(x.type, shape=tuple(shape)), elements)]


def _slice_size(start: Dim, end: Dim, step: int, size: Dim) -> Dim:
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return len(range(*slice(start, end, step).indices(size)))
    if step < 0:
        return UNKNOWN_DIM
    return -((_clamp(start, size) - _clamp(end, size)) // step)


SLICE = OpDef(
    name="slice",
    arity=(3, 5),
    infer=_infer_slice,
    work=no_work,
    view=0,
    summary="x, starts, ends, axes, steps: a range of each named axis, not copied",
)


def _gather_work(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Read the indices and only the gathered elements; write the result.

    Rows with scales beside them are read with those.
    """
    out, x = results[0].nbytes, operands[0]
    read = out
    if x.dtype.scaling is not None and x.rank:
        read = operands[1].numel * x.dtype.row_bytes(x.shape[-1])
    return Work(0, read + operands[1].nbytes, out)


def _infer_gather(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, indices = operands
    axis = normalize_axis(attributes.integer("axis"), x.type.rank)
    shape = x.type.shape
    result = (*shape[:axis], *indices.type.shape, *shape[axis + 1 :])
    elements = _gathered(x, indices, axis)
    dtype = x.type.dtype
    if attributes.get("dtype") is not None:
        dtype = attributes.dtype("dtype")
    return [Abstract(TensorType(dtype, result), elements)]


def _gathered(x: Abstract, indices: Abstract, axis: int) -> tuple[Dim, ...] | None:
    picks = all_of(x)
    if picks is None or indices.elements is None:
        return None
    size = as_int(x.type.shape[axis])
    chosen = [as_int(i) for i in indices.elements]
    if any(not -size <= i < size for i in chosen):
        msg = f"index out of range: {chosen} into {size} elements"
        raise VerifyError(msg)
    picks[axis] = [i % size for i in chosen]
    return picked(x, picks)


GATHER = OpDef(
    name="gather",
    arity=(2, 2),
    infer=_infer_gather,
    work=_gather_work,
    attributes={
        "axis": (int,),
        "dtype": OPTIONAL_DTYPE,  # if not that of x
        "atomic": OPTIONAL_BOOL,  # its gradient adds without a sort: `index_select`
    },
    traits=frozenset({Trait.LOOKUP}),
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
    traits=frozenset({Trait.LOOKUP}),
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
    traits=frozenset({Trait.LOOKUP}),
    summary="slices of x named by index tuples",
)


def _work_scatter(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Copy the data, then read indices and updates and write the updates."""
    data, indices, updates = operands
    flops = updates.numel if attributes.get("reduction") is not None else 0
    read = data.nbytes + indices.nbytes + updates.nbytes
    return Work(flops, read, results[0].nbytes + updates.nbytes)


def _infer_scatter(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    """Give the type of the data; put numbers into a list of known ones."""
    data, updates = operands[0], operands[2]
    elements = [o.elements for o in operands if o.elements is not None]
    lists = data.type.rank == 1 and updates.type.rank == 1
    if len(elements) < len(operands) or not lists or attributes.get("reduction"):
        return [Abstract(data.type)]
    known, places, values = elements
    if len(places) != len(values) or not all(
        isinstance(i, int) and -len(known) <= i < len(known) for i in places
    ):
        return [Abstract(data.type)]
    result = list(known)
    for place, value in zip(places, values, strict=True):
        result[as_int(place)] = value
    return [Abstract(data.type, tuple(result))]


def _scatter(name: str, summary: str) -> OpDef:
    return OpDef(
        name=name,
        arity=(3, 3),
        infer=_infer_scatter,
        work=_work_scatter,
        attributes={"axis": OPTIONAL_INT, "reduction": OPTIONAL_TEXT},
        summary=summary,
    )


SCATTER_ELEMENTS = _scatter(
    "scatter_elements", "x with the elements at indices replaced, or reduced into"
)
SCATTER_ND = _scatter(
    "scatter_nd", "x with the slices at index tuples replaced, or reduced into"
)


def _work_tensor_scatter(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Write the new entries into the cache, which stays where it is."""
    indices = sum(operand.nbytes for operand in operands[2:])
    return Work(0, operands[1].nbytes + indices, operands[1].nbytes)


TENSOR_SCATTER = OpDef(
    name="tensor_scatter",
    arity=(2, 3),
    infer=lambda attributes, operands: [Abstract(operands[0].type)],
    work=_work_tensor_scatter,
    attributes={"axis": OPTIONAL_INT},
    mutates=(0,),
    summary="a cache with new entries written into it, from given places on",
)

REVERSE_SEQUENCE = OpDef(
    name="reverse_sequence",
    arity=(2, 2),
    infer=lambda attributes, operands: [Abstract(operands[0].type)],
    work=touch_all,
    summary="x, lengths: the first elements of each sequence in reverse order",
)


def _infer_index(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, indices = operands[0].type, operands[1].type
    if attributes.get("axes") is not None:
        return [Abstract(TensorType(x.dtype, _indexed(attributes, operands)))]
    axis = normalize_axis(attributes.integer("axis"), max(x.rank, 1))
    depth = indices.shape[-1] if indices.rank else 0
    if not isinstance(depth, int) or not 0 < depth <= x.rank - axis:
        msg = f"indices {indices} do not fit {x} from axis {axis} on"
        raise VerifyError(msg)
    shape = (*x.shape[:axis], *indices.shape[:-1], *x.shape[axis + depth :])
    return [Abstract(TensorType(x.dtype, shape))]


def _indexed(attributes: Record, operands: Sequence[Abstract]) -> tuple[Dim, ...]:
    """Replace the indexed axes; where they are not neighbours, put them in front."""
    x, *indices = (operand.type for operand in operands)
    axes = [normalize_axis(axis, x.rank) for axis in attributes.integers("axes")]
    if len(axes) != len(indices) or len(set(axes)) < len(axes):
        msg = f"{len(indices)} index tensors do not fit axes {axes} of {x}"
        raise VerifyError(msg)
    joined = broadcast([index.shape for index in indices])
    neighbours = axes == list(range(axes[0], axes[0] + len(axes)))
    first = axes[0] if neighbours else 0
    kept = [dim for axis, dim in enumerate(x.shape) if axis not in axes]
    return (*kept[:first], *joined, *kept[first:])


def _work_index(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    out = results[0].nbytes
    return Work(0, out + sum(index.nbytes for index in operands[1:]), out)


INDEX = OpDef(
    name="index",
    arity=(2, None),
    infer=_infer_index,
    work=_work_index,
    attributes={"axis": (int, type(None)), "axes": OPTIONAL_INTS},
    traits=frozenset({Trait.LOOKUP}),
    summary="elements of x at index tuples from one axis on, or at lists of some axes",
)

OPS = named(
    *(SLICE, GATHER, GATHER_ELEMENTS, GATHER_ND, INDEX),
    *(SCATTER_ELEMENTS, SCATTER_ND, TENSOR_SCATTER, REVERSE_SEQUENCE),
)
