"""In which ways each table can be sharded, as TorchRec's planner lists them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

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
from perfc.planning.plans import PlanCost, Table, one_of

KINDS = (DATA_PARALLEL, TABLE_WISE, COLUMN_WISE, ROW_WISE, TABLE_ROW_WISE, GRID)

EVERYWHERE = frozenset((ROW_WISE, DATA_PARALLEL))

LEAST_COLUMNS = 128
"""A part of the columns has no less: narrower rows are read at a penalty."""


@attrs.frozen(eq=False, kw_only=True)
class ShardingOption:
    """One way to shard one table, wherever its parts will go.

    A part goes to one rank, to the ranks of one node, or to all: to `span` ranks.

    Attributes:
        table: The table.
        kind: How it is sharded, one of `KINDS`.
        kernel: What looks it up; if empty, the usual one.
        loads: Of parts, ranks of a part and resources of the cost, float64, shape
            `(parts, span, resources)`.
        seconds: What a rank takes that has nothing else, shape `(parts, span)`.
        memory_bytes: Of a device, shape `(parts, span)`.

    """

    table: Table
    kind: str
    kernel: str
    loads: NDArray[np.float64]
    seconds: NDArray[np.float64]
    memory_bytes: NDArray[np.float64]

    @property
    def parts(self) -> int:
        """Number of parts that its columns go into."""
        return len(self.loads)

    @property
    def span(self) -> int:
        """How many ranks hold a part."""
        return len(self.loads[0])

    @functools.cached_property
    def slowest_s(self) -> float:
        """Seconds of the slowest shard."""
        return float(self.seconds.max())

    @functools.cached_property
    def total_s(self) -> float:
        """Seconds of all shards together."""
        return float(self.seconds.sum())

    @functools.cached_property
    def total_bytes(self) -> float:
        """Bytes of all shards together."""
        return float(self.memory_bytes.sum())

    def placement(self, places: Sequence[int]) -> Placement:
        """Return where it goes, with the rank or the node of each part."""
        told = () if self.kind in EVERYWHERE else tuple(places)
        return Placement(self.kind, told, self.kernel)


def sharding_options(
    table: Table,
    cost: PlanCost,
    world: World,
    kinds: Sequence[str] = KINDS,
    kernels: Sequence[str] = ("",),
) -> list[ShardingOption]:
    """Return all ways in which *table* can be sharded.

    Args:
        table: The table.
        cost: What prices it.
        world: The ranks.
        kinds: How it may be sharded.
        kernels: What may look it up; replicas are always looked up by the usual one.

    """
    return [
        _priced(table, cost, world, Placement(kind, places, kernel))
        for kind in kinds
        for kernel in (kernels if kind != DATA_PARALLEL else ("",))
        for places in _places(kind, table, world)
    ]


def _places(kind: str, table: Table, world: World) -> Iterator[tuple[int, ...]]:
    """Yield places to price it at: it costs the same at all others."""
    one_of("sharding type", kind, KINDS)
    if kind in EVERYWHERE:
        yield ()
    elif kind in (TABLE_WISE, TABLE_ROW_WISE):
        yield (0,)
    else:
        parts = column_parts(table.dim)
        if 1 < parts <= (world.nodes if kind == GRID else world.ranks):
            yield tuple(range(parts))


def column_parts(dim: int) -> int:
    """Return into how many parts columns go: as many as leave 128 or more to each."""
    most = max(1, dim // LEAST_COLUMNS)
    return next(parts for parts in range(most, 0, -1) if dim % parts == 0)


def _priced(
    table: Table, cost: PlanCost, world: World, placement: Placement
) -> ShardingOption:
    shards = cost.shards(table, placement)
    parts = max(1, len(placement.places))
    shape = (parts, len(shards) // parts)
    loads = np.asarray([shard.loads for shard in shards], dtype=np.float64)
    memory = np.asarray([shard.memory_bytes for shard in shards], dtype=np.float64)
    alone = np.zeros((len(shards), world.ranks, loads.shape[1]))
    alone[:, 0] = loads
    return ShardingOption(
        table=table,
        kind=placement.kind,
        kernel=placement.compute_kernel,
        loads=loads.reshape(*shape, -1),
        seconds=cost.step_s(alone).reshape(shape),
        memory_bytes=memory.reshape(shape),
    )
