"""Rows of tables: how many a lookup touches, and the kernels that move them."""

from __future__ import annotations

import functools
import math
from typing import cast

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import kernels, locality
from perfc.ir import AttrValue, DType, Record, TensorType, Work
from perfc.ir.kernels import TABLE_FIELDS
from perfc.passes.lowering.eager.reductions import INDEX_BYTES
from perfc.passes.lowering.eager.site import (
    Launch,
    Site,
    Tensor,
    elementwise_launch,
    vector_launch,
)

PADDING = "padding_index"
"""The attribute that names the row which gets no gradient; negative for none."""


def distinct(rows: int, lookups: int, popularity: str = "") -> int:
    """Return how many of *rows* rows are looked up at all, on average.

    At most there are as many as rows, and as lookups. Equally popular ones, unless
    *popularity* says how they spread.
    """
    if type(lookups) is not int and (each := kernels.many_of(lookups)) is not None:
        return _distinct_of_many(rows, each, popularity)
    return _distinct(rows, lookups, popularity)


@functools.lru_cache(maxsize=4096)
def _distinct(rows: int, lookups: int, popularity: str) -> int:
    if popularity and locality.is_popularity(popularity):
        spread = locality.parse_popularity(popularity)
        return math.ceil(locality.unique_row_count(spread, max(rows, 1), lookups))
    sizes = np.array([float(max(rows, 1))]), np.array([float(lookups)])
    found = locality.distinct_rows(*sizes)
    return math.ceil(float(found[0]))


def _distinct_of_many(rows: int, lookups: kernels.Many, popularity: str) -> int:
    """Count the rows looked up, for each of many numbers of lookups."""

    def each(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        if popularity:
            listed: list[int] = numbers.tolist()
            return np.array([_distinct(rows, number, popularity) for number in listed])
        table = np.full(len(numbers), float(max(rows, 1)))
        found = locality.distinct_rows(table, numbers.astype(np.float64))
        return np.ceil(found).astype(np.int64)

    return cast("int", lookups.each(each))


@attrs.frozen
class Lookup:
    """What an embedding bag looks up: the sizes of its kernels.

    Attributes:
        tables: Rows, dim and mean pooling of each table.
        batch: Bags of each table.
        lookups: Indices of each table.
        index_bytes: Of one index.
        attributes: Those of the op.
        sharers: Ranks that look up tables outside of device memory at once.

    """

    tables: tuple[Record, ...]
    batch: int
    lookups: int
    index_bytes: int
    attributes: Record
    sharers: int = 1

    @classmethod
    def of(cls, site: Site, indices: Tensor, batch: int) -> Lookup:
        """Return the lookup of the op of a site; *indices* are those of all tables."""
        tables = site.attributes.records("tables")
        lookups = indices.numel // len(tables)
        complete = tuple(_described(table, lookups, batch) for table in tables)
        # Say what rows take whose elements have scales beside them.
        if site.opdef.name == "embedding_bag":
            types = (operand.type.dtype for operand in site.operands)
            complete = tuple(
                table
                if dtype.scaling is None
                else table.updated(row_bytes=dtype.row_bytes(table.integer("dim")))
                for table, dtype in zip(complete, types, strict=False)
            )
        for described in (site.attributes, *tables):
            if said := described.get("popularity"):
                locality.parse_popularity(str(said))
        size = indices.type.dtype.bits // 8
        sharers = site.settings.sharers
        return cls(complete, batch, lookups, size, site.attributes, sharers)

    @property
    def total(self) -> int:
        """Indices of all tables."""
        return self.lookups * len(self.tables)

    def touched(self, table: Record) -> int:
        """Return how many rows of a table are looked up at all."""
        popularity = table.get("popularity", self.attributes.get("popularity"))
        rows, kept = table.integer("rows"), table.reader("kept", 1.0)
        return distinct(rows, share_of(self.lookups, kept), str(popularity or ""))

    def params(
        self, tables: tuple[Record, ...] | None = None, **more: AttrValue
    ) -> dict[str, AttrValue]:
        """Return the signature of a kernel over *tables*: as in measured rows."""
        listed = self.tables if tables is None else tables
        params: dict[str, AttrValue] = {
            "batch": self.batch,
            "tables": listed,
            "mode": self.attributes.text("mode"),
            "weighted": self.attributes.flag("weighted"),
        }
        if (popularity := self.attributes.get("popularity")) is not None:
            params["popularity"] = popularity
        if self.index_bytes != INDEX_BYTES:
            params["index_bytes"] = self.index_bytes
        if self.sharers > 1 and any(table.get("tier") for table in listed):
            params["ranks"] = self.sharers
        return params | more


def share_of(lookups: int, kept: float) -> int:
    """Return how many lookups are of bags that differ, of one number or of many."""
    if kept == 1:
        return lookups
    if type(lookups) is not int and (each := kernels.many_of(lookups)) is not None:
        return cast("int", each.each(lambda n: np.ceil(n * kept).astype(np.int64)))
    return math.ceil(lookups * kept)


_FIELDS = frozenset(field.name for field in TABLE_FIELDS)


def _described(table: Record, lookups: int, batch: int) -> Record:
    """Return the record of a table for kernels: of all that a model says, what counts.

    Its mean pooling is known once the shapes are.
    """
    if not table.keys() <= _FIELDS:
        table = Record({k: v for k, v in table.items() if k in _FIELDS})
    if "pooling" in table:
        return table
    mean = lookups / batch if batch else 0.0
    return table.updated(pooling=math.trunc(mean) if mean.is_integer() else mean)


def rows_of(dtype: DType, rows: int, dim: int) -> Tensor:
    """Return a tensor of rows on the device."""
    return Tensor(TensorType(dtype, (rows, dim)))


def gather(kind: str, table: Tensor, moved: Tensor, work: Work | None = None) -> Launch:
    """Read, or write, at indices: as many rows of *table* as *moved* has."""
    if work is None:
        listed = moved.shape[0] * INDEX_BYTES
        work = Work(0, moved.nbytes + listed, moved.nbytes)
    params: dict[str, AttrValue] = {
        "kind": kind,
        "axis": 0,
        "shape": table.shape,
        "indices": moved.shape[:1],
    }
    return vector_launch("gather", table.type.dtype, params, work)


def add_rows(
    table: Tensor, values: Tensor, popularity: str = "", kept: float = 1.0
) -> Launch:
    """`index_add_`: add every row of values to its row of the table, atomically."""
    count = values.shape[0]
    rows, dim = table.shape if table.type.rank > 1 else (*table.shape, 1)
    described = Record({"rows": rows, "dim": dim, "pooling": 1})
    if kept != 1:
        described = described.updated(kept=kept)
    params: dict[str, AttrValue] = {
        "batch": count,
        "tables": (described,),
        "phase": "backward",
        "optimizer": "sgd",
        "algorithm": "atomic",
    }
    if popularity:
        params["popularity"] = popularity
    touched = distinct(rows, share_of(count, kept), popularity) * (
        table.nbytes // max(rows, 1)
    )
    read = values.nbytes + count * INDEX_BYTES + touched
    work = Work(values.numel, read, touched)
    return vector_launch("embedding_bag", table.type.dtype, params, work)


def elementwise(kind: str, out: Tensor, *inputs: Tensor) -> Launch:
    """One flop an element."""
    return elementwise_launch(kind, inputs, out, out.numel)
