"""The cost `torchrec`: plans as TorchRec's planner prices them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.passes import DATA_PARALLEL, USUAL_CACHE, Placement, embeddings
from perfc.planning.plans import Shard, Table, check_placement, check_table
from perfc.planning.reference.perf import Constraints, Perf, PerfRules
from perfc.planning.reference.storage import ShardSize, Storage, StorageRules
from perfc.planning.reference.topology import QUANT

RESOURCES = (
    "lookup_s",
    "forward_comms_s",
    "update_s",
    "backward_comms_s",
    "prefetch_s",
)
"""The fields of `Perf`, by the names that lookups and updates have in all costs."""


def _same_machine(cost: TorchRecCost) -> StorageRules:
    return StorageRules(perf=cost.rules)


@attrs.frozen(kw_only=True)
class TorchRecCost:
    """Prices plans as TorchRec's planner does, for whoever must agree with it.

    A rank takes the sum of the times of its shards, lookups and collectives one after
    the other; a step takes as long as the rank that takes longest. Nothing of the
    model but its tables counts.

    Attributes:
        rules: Rules of time: the machine, the batch, what is sent.
        storage_rules: Rules of memory; by default those of `sgd`, without a pipeline.
        constraints: What else is known of tables, by name.

    """

    rules: PerfRules
    storage_rules: StorageRules = attrs.field(
        default=attrs.Factory(_same_machine, takes_self=True)
    )
    constraints: Mapping[str, Constraints] = attrs.field(factory=dict[str, Constraints])

    @property
    def resources(self) -> tuple[str, ...]:
        """The five times of a shard."""
        return RESOURCES

    def shards(self, table: Table, placement: Placement) -> Sequence[Shard]:
        """Return the shards that *table* adds to the ranks that hold a part of it.

        `memory_bytes` are those of the device.
        """
        known: dict[ShardSize, tuple[tuple[float, ...], float, float]] = {}
        found: list[Shard] = []
        for rank, size in self._parts(table, placement):
            if size not in known:
                loads = attrs.astuple(self._perf(table, placement, size.dim))
                memory = self._storage(table, placement, size)
                known[size] = loads, memory.hbm_bytes, memory.ddr_bytes
            found.append(Shard(rank, *known[size]))
        return found

    def storage(
        self, table: Table, placement: Placement
    ) -> Sequence[tuple[int, Storage]]:
        """Return of each part of *table* the rank and what it takes in memory."""
        return [
            (rank, self._storage(table, placement, size))
            for rank, size in self._parts(table, placement)
        ]

    def step_s(self, loads: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the time of steps in seconds: of the rank with the largest sum.

        Args:
            loads: Of plans, ranks and resources, float64, shape `(..., ranks, 5)`.

        Returns:
            Shape `(...)`.

        """
        return np.asarray(loads.sum(axis=-1).max(axis=-1), dtype=np.float64)

    def kernel_of(self, placement: Placement) -> str:
        """Return the compute kernel of *placement*: its own, or the usual one."""
        if placement.compute_kernel:
            return placement.compute_kernel
        if self.rules.inference:
            return QUANT
        return embeddings.usual_kernel(placement.kind)

    def _said(self, table: Table, placement: Placement) -> Constraints | None:
        said = self.constraints.get(table.name)
        if said is None and placement.cache != USUAL_CACHE:
            return Constraints(cache_load_factor=placement.cache)
        return said

    def _perf(self, table: Table, placement: Placement, dim: int) -> Perf:
        kernel, said = self.kernel_of(placement), self._said(table, placement)
        return self.rules.perf(table, placement.kind, kernel, dim, said)

    def _storage(self, table: Table, placement: Placement, size: ShardSize) -> Storage:
        kernel, said = self.kernel_of(placement), self._said(table, placement)
        return self.storage_rules.storage(table, placement.kind, kernel, size, said)

    def _parts(
        self, table: Table, placement: Placement
    ) -> Iterator[tuple[int, ShardSize]]:
        """Yield the rank and the size of each part of *table*."""
        world = self.rules.topology.world
        check_table(table)
        check_placement(table, placement, world)
        places, rows, dim = placement.places, table.rows, table.dim
        ranks, nodes = range(world.ranks), world.per_node
        if placement.kind == DATA_PARALLEL:
            yield from ((rank, ShardSize(rows, dim)) for rank in ranks)
        elif placement.kind == embeddings.ROW_WISE:
            sizes = _row_blocks(rows, world.ranks)
            yield from zip(ranks, (ShardSize(n, dim) for n in sizes), strict=True)
        elif placement.kind in (embeddings.TABLE_WISE, embeddings.COLUMN_WISE):
            yield from ((rank, ShardSize(rows, dim // len(places))) for rank in places)
        elif placement.kind in (embeddings.TABLE_ROW_WISE, embeddings.GRID):
            for node in places:
                for nth, block in enumerate(_row_blocks(rows, nodes)):
                    yield node * nodes + nth, ShardSize(block, dim // len(places))


def _row_blocks(rows: int, parts: int) -> list[int]:
    """Split rows into blocks of the same size; the last ones may be short or empty."""
    size = -(-rows // parts)
    return [max(0, min(size, rows - part * size)) for part in range(parts)]
