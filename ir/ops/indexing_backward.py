"""Gradients of slices and look-ups: zeros, with values put or added in."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfc.ir.dims import Dim
from perfc.ir.errors import VerifyError
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef
from perfc.ir.ops.embedding import MODES
from perfc.ir.ops.rules import (
    IN_PLACE,
    OPTIONAL_BOOL,
    OPTIONAL_INT,
    OPTIONAL_INTS,
    OPTIONAL_TEXT,
    first_operand,
)
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
    """Write zeros everywhere, then copy the gradient into its place."""
    moved = operands[0].nbytes
    return Work(0, moved, results[0].nbytes + moved)


SLICE_BACKWARD = OpDef(
    name="slice_backward",
    arity=(1, 1),
    infer=_infer_slice,
    work=_work_slice,
    attributes={"shape": (tuple,), "axes": OPTIONAL_INTS},
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
    arity=(2, None),
    infer=first_operand,
    work=_work_put,
    attributes={
        "axis": OPTIONAL_INT,  # the first axis that is indexed
        "accumulate": OPTIONAL_BOOL,
        **IN_PLACE,
    },
    summary="x, values, indices...: x with values put, or added, at index tuples",
)


def _table(attributes: Record, dtype: TensorType) -> TensorType:
    rows, dim = attributes.dims("shape")
    return TensorType(dtype.dtype, (rows, dim))


def _infer_embedding(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    """Dense: the whole table. Sparse: the indices, and one row of values for each."""
    grad, indices = operands[0].type, operands[1].type
    if len(attributes.dims("shape")) != 2:  # noqa: PLR2004 - rows, dim
        msg = f"expected rows and dim of the table, got {attributes['shape']!r}"
        raise VerifyError(msg)
    table = _table(attributes, grad)
    if not attributes.flag("sparse"):
        return [Abstract(table)]
    return _sparse(table, indices)


def _sparse(table: TensorType, indices: TensorType) -> list[Abstract]:
    nnz: Dim = indices.numel
    places = attrs.evolve(indices, shape=(nnz,))
    return [Abstract(places), Abstract(TensorType(table.dtype, (nnz, table.shape[1])))]


def _work_lookup(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Add a row for each index; a dense gradient is zeroed first."""
    grad, indices = operands[:2]
    width = results[-1].shape[-1]
    moved = indices.numel * width * (grad.dtype.bits // 8)
    read = sum(operand.nbytes for operand in operands[1:]) + moved
    written = sum(result.nbytes for result in results)
    if attributes.flag("sparse"):
        return Work(0, read, written)
    return Work(indices.numel * width, read + moved, written + moved)


EMBEDDING_BACKWARD = OpDef(
    name="embedding_backward",
    arity=(2, 2),
    results=None,
    infer=_infer_embedding,
    work=_work_lookup,
    attributes={
        "shape": (tuple,),  # rows and dim of the table
        "sparse": OPTIONAL_BOOL,
        "padding_index": OPTIONAL_INT,
    },
    summary="gradient of rows gathered, indices: the table's, or indices and rows",
)


def _infer_bag(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    if attributes.text("mode") not in MODES:
        msg = f"mode {attributes['mode']!r} is none of {', '.join(MODES)}"
        raise VerifyError(msg)
    return _infer_embedding(attributes, operands)


EMBEDDING_BAG_BACKWARD = OpDef(
    name="embedding_bag_backward",
    arity=(2, None),
    results=None,
    infer=_infer_bag,
    work=_work_lookup,
    attributes={
        "shape": (tuple,),
        "mode": (str,),
        "sparse": OPTIONAL_BOOL,
        "weighted": OPTIONAL_BOOL,
        "padding_index": OPTIONAL_INT,
        "popularity": OPTIONAL_TEXT,
    },
    summary="gradient of pooled rows, indices, offsets: the table's, or indices, rows",
)

OPS = (SLICE_BACKWARD, INDEX_PUT, EMBEDDING_BACKWARD, EMBEDDING_BAG_BACKWARD)
