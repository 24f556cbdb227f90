"""Embedding tables of a workload, and lookups in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import torch
from torch import Tensor, nn

from perfc.frontends import WORKLOADS
from perfc.twins.twin import Values

ONE_BAG_A_TABLE: Mapping[str, int | str] = {"embedding": "bag"}
"""PyTorch has no lookup of several tables at once; FBGEMM has."""


@attrs.frozen
class Table:
    """One table, and how many of its rows each bag sums."""

    rows: int
    pooling: int


def tables_of(name: str, values: Values) -> list[Table]:
    """Return the tables that the workload *name* has at these parameters."""
    workload = WORKLOADS[name]
    known = {key: values[key] for key in workload.parameters}
    graph = workload.make(known).classes[0].ops
    nodes = [] if graph is None else [n for n in graph if n.op == "embedding_bag"]
    records = [r for node in nodes for r in node.attributes.records("tables")]
    found = [Table(r.integer("rows"), r.integer("pooling")) for r in records]
    return found[-int(values["tables"]) :]


def bag_inputs(
    tables: Sequence[Table], batch: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Return indices and offsets of each table, all rows equally likely."""
    indices = [torch.randint(t.rows, (batch * t.pooling,)) for t in tables]
    offsets = [torch.arange(batch) * t.pooling for t in tables]
    return indices, offsets


def bags_of(tables: int, batch: int, pooling: int) -> tuple[list[Tensor], list[Tensor]]:
    """Return offsets and indices for so many tables, *pooling* lookups a bag."""
    offsets = [torch.arange(batch) * pooling for _ in range(tables)]
    indices = [torch.zeros(batch * pooling, dtype=torch.int64) for _ in range(tables)]
    return offsets, indices


class Bags(nn.Module):
    """One embedding bag per table."""

    def __init__(self, rows: Sequence[int], dim: int, *, sparse: bool = False) -> None:
        """Make the tables."""
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(count, dim, mode="sum", sparse=sparse) for count in rows
        )

    def forward(self, bags: Sequence[Tensor]) -> list[Tensor]:
        """Look up; *bags* are indices and offsets in turn."""
        pairs = zip(bags[::2], bags[1::2], strict=True)
        return [table(*pair) for table, pair in zip(self.tables, pairs, strict=True)]
