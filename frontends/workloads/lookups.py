"""Embedding lookups of recommendation models: one bag per table and sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from perfc.frontends.workloads.builder import BATCH, I32, I64, Builder
from perfc.ir import AttrValue, DType, Record, Value
from perfc.ir.dims import Dim

MAX_TABLES = 4_000
"""A graph of more would not fit into memory."""

LOOKUP_CHOICES: Mapping[str, tuple[str, ...]] = {"embedding": ("bag", "batched")}
"""One op per table, or one for all."""


LOOKUP_TEXTS = frozenset({"popularity"})
"""Parameters that cost models read."""

UNIFORM = "uniform"
"""Every row is looked up alike."""

_UNLIMITED = "none"
"""Tables have the rows they have; a number cuts those that have more."""


@attrs.frozen(kw_only=True)
class Tables:
    """The embedding tables of a model.

    Attributes:
        rows: Rows of each table.
        dim: Columns of every table.
        pooling: Lookups per bag of each table.
        batched: One lookup kernel for all tables, not one a table.
        popularity: How lookups spread over the rows of each.

    """

    rows: tuple[int, ...]
    dim: int
    pooling: tuple[int, ...]
    batched: bool = False
    popularity: str = UNIFORM

    def __len__(self) -> int:
        return len(self.rows)

    def parameters(self, rows: int | str, pooling: int | str) -> dict[str, int | str]:
        """Return the workload parameters that `changed` understands.

        *rows* and *pooling* are one number for all tables, or a word for those of
        the data set.
        """
        return {
            "embedding": "bag",
            "tables": len(self),
            "rows": rows,
            "dim": self.dim,
            "pooling": pooling,
            "max_rows": _UNLIMITED,
            "popularity": UNIFORM,
        }

    def changed(self, values: Mapping[str, int | str]) -> Tables:
        """Return the tables a user asks for; a list that is too short starts over."""
        tables = int(values["tables"])
        rows, most = _repeated(self.rows, values["rows"], tables), values["max_rows"]
        return Tables(
            rows=rows if isinstance(most, str) else tuple(min(r, most) for r in rows),
            dim=int(values["dim"]),
            pooling=_repeated(self.pooling, values["pooling"], tables),
            batched=values["embedding"] == "batched",
            popularity=str(values["popularity"]),
        )

    def records(self) -> tuple[Record, ...]:
        """Describe each table as `embedding_bag` wants it."""
        skewed = self.popularity != UNIFORM
        more = {"popularity": self.popularity} if skewed else {}
        return tuple(
            Record({"rows": rows, "dim": self.dim, "pooling": pooling, **more})
            for rows, pooling in zip(self.rows, self.pooling, strict=True)
        )


def _repeated(listed: Sequence[int], given: int | str, count: int) -> tuple[int, ...]:
    if isinstance(given, int):
        return (given,) * count
    return tuple(listed[i % len(listed)] for i in range(count))


def declare_bags(builder: Builder, tables: Tables) -> list[tuple[Value, Value]]:
    """Declare indices and offsets: of each table, or of all tables in one list.

    The one list is of 32 bits, as in traces of Lin et al. (arXiv 2201.07821).
    """
    if tables.batched:
        lookups, bounds = sum(tables.pooling), BATCH * len(tables) + 1
        return [_indices_and_offsets(builder, "", BATCH * lookups, bounds, I32)]
    return [
        _indices_and_offsets(builder, f"_{table}", BATCH * pooling, BATCH)
        for table, pooling in enumerate(tables.pooling)
    ]


def _indices_and_offsets(
    builder: Builder, suffix: str, lookups: Dim, bounds: Dim, dtype: DType = I64
) -> tuple[Value, Value]:
    return (
        builder.indices(f"indices{suffix}", lookups, dtype=dtype),
        builder.indices(f"offsets{suffix}", bounds, dtype=dtype),
    )


def look_up(
    builder: Builder, stem: str, tables: Tables, bags: Sequence[tuple[Value, Value]]
) -> list[Value]:
    """Sum the rows of each bag, to [batch, dim] per table or [batch, tables x dim].

    Args:
        builder: Where the nodes go.
        stem: Path of a table before its number, as `emb_l.`.
        tables: What to look up in.
        bags: Indices and offsets, as `declare_bags` made them.

    """
    weights = [
        builder.parameter(f"{stem}{table}.weight", rows, tables.dim)
        for table, rows in enumerate(tables.rows)
    ]
    if tables.batched:
        name = f"{stem.rpartition('.')[0]}.bags"
        operands = (*weights, *bags[0])
        return [_bag(builder, name, operands, tables.records(), batched=True)]
    return [
        _bag(builder, f"{stem}{table}.bag", (weights[table], *bags[table]), (record,))
        for table, record in enumerate(tables.records())
    ]


def _bag(
    builder: Builder,
    name: str,
    operands: Sequence[Value],
    records: tuple[Record, ...],
    *,
    batched: bool = False,
) -> Value:
    attributes: dict[str, AttrValue] = {"tables": records, "mode": "sum"}
    attributes["has_offsets"] = True
    if batched:
        attributes["include_last_offset"] = True
    return builder.op("embedding_bag", name, *operands, **attributes)
