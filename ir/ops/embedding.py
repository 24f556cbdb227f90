"""The embedding bag: rows of tables looked up, and pooled per bag.

One op class carries what recommendation models need: each table is a record of
`rows` and `dim`, and optionally `pooling` (mean lookups per bag), `popularity`,
`cache`, `placement`, `sharding`, `kept` (share of bags that differ from the one before
them); passes rewrite attributes rather than add ops.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfc.ir.dims import Dim, Expr
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, Trait, named
from perfc.ir.ops import rules
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import DType, TensorType

MODES = ("sum", "mean", "max")


BAG_ATTRIBUTES: Mapping[str, tuple[type, ...]] = {
    "tables": (tuple,),
    "mode": (str,),
    "has_offsets": rules.OPTIONAL_BOOL,
    "include_last_offset": rules.OPTIONAL_BOOL,
    "weighted": rules.OPTIONAL_BOOL,
    "padding_index": rules.OPTIONAL_INT,
    "popularity": rules.OPTIONAL_TEXT,
    "distinct": rules.OPTIONAL_INTS,  # samples, and the share of them that are its bags
}
"""Attributes of a lookup, and of its gradient."""


def dim_of(table: Record, name: str) -> Dim:
    """Return a size of a table."""
    value = table.get(name)
    if isinstance(value, int | Expr) and not isinstance(value, bool):
        return value
    msg = f"a table has no {name!r}: {table}"
    raise VerifyError(msg)


def require_bag(attributes: Record) -> None:
    """Raise `VerifyError` unless rows are pooled in a way that there is."""
    if attributes.text("mode") not in MODES:
        msg = f"mode {attributes['mode']!r} is none of {', '.join(MODES)}"
        raise VerifyError(msg)
    if attributes.get("distinct") is not None:
        rules.check_quotient(attributes, "distinct", 3)
    for table in attributes.records("tables"):
        _check_lookups(table)


def _expected_operands(attributes: Record, tables: int) -> int:
    extra = ("has_offsets", "weighted")
    return tables + 1 + sum(attributes.flag(name) for name in extra)


def bags(attributes: Record, operands: Sequence[TensorType]) -> Dim:
    """Return the number of bags per table (the batch).

    2-D indices: their first dimension. 1-D indices: one offset per bag (and one
    more if `include_last_offset`), per table where several tables share them.
    """
    tables = len(attributes.records("tables"))
    indices = operands[tables]
    if not attributes.flag("has_offsets"):
        return indices.shape[0]
    offsets = operands[tables + 1].shape[0]
    if attributes.flag("include_last_offset"):
        offsets = offsets - 1
    return offsets // tables


def _check_lookups(table: Record) -> None:
    """Refuse what no table can say of its lookups."""
    pooling = table.get("pooling")
    if isinstance(pooling, bool) or not isinstance(pooling, int | float | Expr | None):
        msg = f"pooling of table {table} is no number"
        raise VerifyError(msg)
    if isinstance(pooling, int | float) and not 0 <= pooling < math.inf:
        msg = f"pooling of table {table} is {pooling}"
        raise VerifyError(msg)
    kept = table.get("kept", 1.0)
    if not isinstance(kept, float) or not 0 < kept <= 1:
        msg = f"kept of table {table} is no share of its bags"
        raise VerifyError(msg)
    for name in ("popularity", "tier"):
        if not isinstance(table.get(name), str | None):
            msg = f"{name} of table {table} is no text"
            raise VerifyError(msg)


def _infer(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    tables = attributes.records("tables")
    types = [operand.type for operand in operands]
    if not tables or len(types) != _expected_operands(attributes, len(tables)):
        msg = f"{len(types)} operands do not fit {len(tables)} tables"
        raise VerifyError(msg)
    require_bag(attributes)
    for table, weight in zip(tables, types, strict=False):
        if weight.shape != (dim_of(table, "rows"), dim_of(table, "dim")):
            msg = f"table {table} does not describe weight {weight}"
            raise VerifyError(msg)
    if attributes.flag("has_offsets") and types[len(tables) + 1].rank != 1:
        msg = f"offsets {types[len(tables) + 1]} are not a list"
        raise VerifyError(msg)
    if types[len(tables)].rank != (1 if attributes.flag("has_offsets") else 2):
        msg = f"indices {types[len(tables)]} need offsets, or a second dimension"
        raise VerifyError(msg)
    width: Dim = 0
    for table in tables:
        width = width + dim_of(table, "dim")
    batch = bags(attributes, types)
    given = attributes.get("out_dtype")
    dtype = given if isinstance(given, DType) else types[0].dtype
    return [Abstract(TensorType(dtype, (batch, width)))]


def _work(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Every lookup reads its row; indices and offsets are read once.

    Whether a row read twice comes from cache is the cost model's business.
    """
    tables = attributes.records("tables")
    lookups = operands[len(tables)].numel // len(tables)
    read = sum(operand.nbytes for operand in operands[len(tables) :])
    flops = 0
    for table, weight in zip(tables, operands, strict=False):
        read = read + weight.dtype.row_bytes(dim_of(table, "dim")) * lookups
        flops = flops + lookups * dim_of(table, "dim")
    return Work(flops, read, results[0].nbytes)


EMBEDDING_BAG = OpDef(
    name="embedding_bag",
    arity=(2, None),
    infer=_infer,
    work=_work,
    attributes={
        **BAG_ATTRIBUTES,
        "out_dtype": rules.OPTIONAL_DTYPE,
    },  # if not the tables'
    traits=frozenset({Trait.EMBEDDING_BAG}),
    summary="weights..., indices[, offsets][, sample weights]: pooled rows per bag",
)

OPS = named(EMBEDDING_BAG)
