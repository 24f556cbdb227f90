"""Gradients of lookups: of the whole table, of looked up rows, or applied at once.

`embedding_bag_backward` has the attributes of the `embedding_bag` whose gradient it
is, and one of three forms, which are PyTorch's and fbgemm's:

- dense (`nn.EmbeddingBag`): a gradient of the size of each table, zeros but for the
  rows that were looked up;
- `sparse = true` (`nn.EmbeddingBag(sparse=True)`, one table): the indices, and one row
  of values for each; `sparse_optimizer_step` takes them;
- `optimizer = "rowwise_adagrad"`, ... (a fused lookup, TorchRec's
  `FusedEmbeddingBagCollection`): no gradient exists; the tables and the states of the
  optimizer, further operands, are updated in place. `atomic = true`: by one kernel that
  adds lookup by lookup; else lookups are sorted first.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfc.ir.dims import Dim
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, Trait, named
from perfc.ir.ops.embedding import BAG_ATTRIBUTES, dim_of, require_bag
from perfc.ir.ops.optimizer import OPTIMIZER_FLOPS, check_states, state_types
from perfc.ir.ops.rules import OPTIONAL_BOOL, OPTIONAL_INT, OPTIONAL_TEXT
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import TensorType

_MATRIX = 2


def _infer_embedding(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    grad, indices = operands[0].type, operands[1].type
    shape = attributes.dims("shape")
    if len(shape) != _MATRIX:
        msg = f"expected rows and dim of the table, got {attributes['shape']!r}"
        raise VerifyError(msg)
    table = TensorType(grad.dtype, shape)
    if attributes.flag("sparse"):
        return _sparse(table, indices)
    return [Abstract(table)]


def _sparse(table: TensorType, indices: TensorType) -> list[Abstract]:
    """The indices, and one row of values for each."""
    lookups: Dim = indices.numel
    places = attrs.evolve(indices, shape=(lookups,))
    rows = TensorType(table.dtype, (lookups, table.shape[1]))
    return [Abstract(places), Abstract(rows)]


def _work_embedding(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Add a row for each index to a table of zeros, or keep the rows as they are."""
    if attributes.flag("sparse"):
        read = operands[1].nbytes + results[1].nbytes
        return Work(0, read, results[0].nbytes + results[1].nbytes)
    indices, table = operands[1], results[0]
    elements = indices.numel * table.shape[1]
    rows = elements * (table.dtype.bits // 8)
    read = indices.nbytes + 2 * rows
    return Work(elements, read, table.nbytes + rows)


EMBEDDING_BACKWARD = OpDef(
    name="embedding_backward",
    arity=(2, 2),
    results=None,
    infer=_infer_embedding,
    work=_work_embedding,
    attributes={
        "shape": (tuple,),  # rows and dim of the table
        "sparse": OPTIONAL_BOOL,
        "padding_index": OPTIONAL_INT,
        "popularity": OPTIONAL_TEXT,
    },
    summary="gradient of rows gathered, indices: the table's, or indices and rows",
)


def inputs_of_backward(attributes: Record) -> int:
    """Return how many operands come before the tables of an `embedding_bag_backward`.

    The gradient of the pooled rows, the indices, the offsets (`has_offsets`) and the
    sample weights (`weighted`), as the forward op has them.
    """
    return 2 + sum(attributes.flag(name) for name in ("has_offsets", "weighted"))


def _infer_bag(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    require_bag(attributes)
    types = [operand.type for operand in operands]
    if types[0].rank != _MATRIX:
        msg = f"expected gradients of pooled rows [bags, columns], got {types[0]}"
        raise VerifyError(msg)
    kind, first = attributes.text("optimizer", ""), inputs_of_backward(attributes)
    weights = [
        TensorType(types[0].dtype, (dim_of(table, "rows"), dim_of(table, "dim")))
        for table in attributes.records("tables")
    ]
    updated = sum(1 + len(state_types(kind, w)) for w in weights) if kind else 0
    if not weights or len(types) != first + updated:
        msg = f"{len(types)} operands do not fit {len(weights)} tables"
        raise VerifyError(msg)
    if kind:
        states = first + len(weights)
        _check_tables(weights, types[first:states])
        check_states(kind, weights, types[states:])
        return []
    if not attributes.flag("sparse"):
        return [Abstract(weight) for weight in weights]
    if len(weights) > 1:
        msg = f"a sparse gradient is of one table, not of {len(weights)}"
        raise VerifyError(msg)
    return _sparse(weights[0], types[1])


def _check_tables(described: Sequence[TensorType], found: Sequence[TensorType]) -> None:
    for weight, table in zip(described, found, strict=True):
        if weight.shape != table.shape:
            msg = f"table {table} is described as one of shape {list(weight.shape)}"
            raise VerifyError(msg)


def _work_bag(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Every lookup reads the gradient of its bag, and reads and writes its row.

    A dense gradient is zeroed first, and rows of states are read and written as those
    of the tables are. How many rows differ is the cost model's business, as it is in
    the forward op; so is the sort that brings equal rows together.
    """
    first = inputs_of_backward(attributes)
    tables = attributes.records("tables")
    lookups = operands[1].numel // len(tables)
    item = operands[0].dtype.bits // 8
    elements = lookups * sum(dim_of(table, "dim") for table in tables)
    read = sum(operand.nbytes for operand in operands[1:first]) + elements * item
    written = sum(result.nbytes for result in results)
    if attributes.flag("sparse"):
        return Work(0, read, written)
    rows = elements * item
    for updated in operands[first:]:
        rows = rows + updated.nbytes // updated.shape[0] * lookups
    if attributes.text("optimizer", ""):
        rows = rows - elements * item  # the tables are among the operands
    flops = 1 + OPTIMIZER_FLOPS.get(attributes.text("optimizer", ""), 0)
    return Work(flops * elements, read + rows, written + rows)


EMBEDDING_BAG_BACKWARD = OpDef(
    name="embedding_bag_backward",
    arity=(2, None),
    results=None,
    infer=_infer_bag,
    work=_work_bag,
    attributes={
        **BAG_ATTRIBUTES,
        "sparse": OPTIONAL_BOOL,
        "optimizer": OPTIONAL_TEXT,  # then tables, and states list by list, follow
        "atomic": OPTIONAL_BOOL,  # with sgd
    },
    traits=frozenset({Trait.EMBEDDING_BAG}),
    summary="gradient of pooled rows, indices...: of tables, of rows, or their update",
)


def _infer_weights(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    require_bag(attributes)
    tables = attributes.records("tables")
    given = 2 + len(tables) + attributes.flag("has_offsets")
    if not tables or len(operands) != given:
        msg = f"{len(operands)} operands do not fit {len(tables)} tables"
        raise VerifyError(msg)
    weights = [operand.type for operand in operands[1 : 1 + len(tables)]]
    for table, weight in zip(tables, weights, strict=True):
        if weight.shape != (dim_of(table, "rows"), dim_of(table, "dim")):
            msg = f"table {table} does not describe weight {weight}"
            raise VerifyError(msg)
    grad, indices = operands[0].type, operands[1 + len(tables)].type
    return [Abstract(attrs.evolve(indices, dtype=grad.dtype))]


def _work_weights(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Every lookup reads its row and the gradient of its bag: their product."""
    tables = attributes.records("tables")
    lookups = results[0].numel // len(tables)
    elements = lookups * sum(dim_of(table, "dim") for table in tables)
    listed = sum(operand.nbytes for operand in operands[1 + len(tables) :])
    read = 2 * elements * (operands[0].dtype.bits // 8) + listed
    return Work(2 * elements, read, results[0].nbytes)


BAG_WEIGHTS_BACKWARD = OpDef(
    name="bag_weights_backward",
    arity=(3, None),
    infer=_infer_weights,
    work=_work_weights,
    attributes=BAG_ATTRIBUTES,
    summary="gradient of sample weights: pooled rows', tables..., indices[, offsets]",
)

OPS = named(EMBEDDING_BACKWARD, EMBEDDING_BAG_BACKWARD, BAG_WEIGHTS_BACKWARD)
