"""Random tasks, and a cost that is quick to reason about."""

from __future__ import annotations

import random
from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.passes import DATA_PARALLEL, Placement, World
from perfc.passes.embeddings import (
    COLUMN_WISE,
    GRID,
    ROW_WISE,
    TABLE_ROW_WISE,
    TABLE_WISE,
)
from perfc.planning.plans import Shard, Table
from perfc.planning.searches import Task

ALL_TYPES = (TABLE_WISE, COLUMN_WISE, ROW_WISE, TABLE_ROW_WISE, GRID, DATA_PARALLEL)
DIMS = (16, 32, 64, 128)


@attrs.frozen
class ToyCost:
    """Lookups in seconds and rows in bytes: the slowest rank, then the fullest.

    Attributes:
        world: The ranks.
        resources: Columns of loads.

    """

    world: World
    resources: tuple[str, ...] = ("lookup_s", "rows_bytes")

    def shards(self, table: Table, placement: Placement) -> Sequence[Shard]:
        """A part costs its columns x lookups, and a start of its own."""
        ranks, per_node = self.world.ranks, self.world.per_node
        kind, places = placement.kind, placement.places
        among = 1
        if kind in (ROW_WISE, DATA_PARALLEL):
            held = list(range(ranks))
            among = ranks if kind == ROW_WISE else 1
        elif kind in (TABLE_ROW_WISE, GRID):
            held = [p * per_node + r for p in places for r in range(per_node)]
            among = per_node
        else:
            held = list(places)
        dim = table.dim / max(len(places), 1)
        lookup_s = 1e-9 * dim * table.pooling / among + 2e-9 * table.pooling
        loads = (lookup_s, dim * 4e-3)
        memory = table.bytes / max(len(places), 1) / among
        return [Shard(rank, loads, memory) for rank in held]

    def step_s(self, loads: NDArray[np.float64]) -> NDArray[np.float64]:
        """A constant, the slowest lookups, and the exchange beside the dense part."""
        most = loads.max(axis=-2)
        sent_s = np.maximum(most[..., 1] * 1e-7, 1e-8)
        found: NDArray[np.float64] = 1e-8 + most[..., 0] + sent_s
        return found


def random_tables(seed: int, count: int) -> list[Table]:
    """Tables of sizes as recommendation models have them."""
    chance = random.Random(seed)
    return [
        Table(
            name=f"t{number}",
            rows=int(10 ** chance.uniform(2, 7)),
            dim=chance.choice(DIMS),
            pooling=float(int(10 ** chance.uniform(0, 2))),
        )
        for number in range(count)
    ]


def toy_task(
    seed: int,
    count: int,
    ranks: int,
    *,
    per_node: int = 8,
    types: Sequence[str] = (TABLE_WISE, COLUMN_WISE),
    slack: float = 2.0,
) -> Task:
    """A task with *slack* times the memory that its tables take."""
    tables, world = random_tables(seed, count), World(ranks, min(per_node, ranks))
    memory = slack * sum(t.bytes for t in tables) / ranks
    memory = max(memory, *(t.bytes for t in tables))
    return Task.of(tables, ToyCost(world), world, memory, types)
