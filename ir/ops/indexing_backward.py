"""Gradients of slices and indexing: zeros, with values put or added in."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops import rules
from perfc.ir.record import Record
from perfc.ir.types import TensorType


def _infer_slice(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    grad = operands[0].type
    return [Abstract(attrs.evolve(grad, shape=attributes.dims("shape")).checked())]


def _work_slice(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    moved = operands[0].nbytes
    return Work(0, moved, results[0].nbytes + moved)


SLICE_BACKWARD = OpDef(
    name="slice_backward",
    arity=(1, 1),
    infer=_infer_slice,
    work=_work_slice,
    attributes={"shape": (tuple,), "axes": rules.OPTIONAL_INTS},
    summary="gradient of slice, select, ...: zeros of a shape, the gradient put in",
)


def _work_put(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Read indices and values, and read (to add) and write the places they name."""
    values = operands[1]
    added = values.numel if attributes.flag("accumulate") else 0
    read = sum(operand.nbytes for operand in operands[1:])
    kept = 0 if attributes.flag("in_place") else operands[0].nbytes
    read = read + kept + (values.nbytes if added else 0)
    return Work(added, read, values.nbytes + kept)


INDEX_PUT = OpDef(
    name="index_put",
    arity=(3, None),
    infer=rules.first_operand,
    work=_work_put,
    attributes={
        "axis": rules.OPTIONAL_INT,  # the first axis that is indexed
        "accumulate": rules.OPTIONAL_BOOL,
        "atomic": rules.OPTIONAL_BOOL,  # rows are added as they come: `index_add_`
        **rules.IN_PLACE,
    },
    summary="x, values, indices...: x with values put, or added, at index tuples",
)


OPS = named(SLICE_BACKWARD, INDEX_PUT)
