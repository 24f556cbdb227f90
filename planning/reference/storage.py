"""How much memory TorchRec's planner thinks that a shard takes.

The formulas are those of `EmbeddingStorageEstimator`
(`torchrec/distributed/planner/shard_estimators.py`): rows, states of the optimizer,
what a cache keeps books of, and inputs and outputs as often as a pipeline holds them.
"""

from __future__ import annotations

import math

import attrs

from perfc.passes import DATA_PARALLEL
from perfc.passes.embeddings import GRID, ROW_WISE, TABLE_ROW_WISE
from perfc.planning.plans import Table, one_of
from perfc.planning.reference import topology
from perfc.planning.reference.perf import (
    INDEX_BYTES,
    PRICED_TYPES,
    Constraints,
    PerfRules,
)

_STATES = {"sgd": 0.0, "adam": 2.0, "adamw": 1.0, "adagrad": 1.0}
"""States of each element of a row, by optimizer. TorchRec takes optimizers that it does
not name, such as AdamW, to keep one."""

OPTIMIZERS = (*_STATES, "rowwise_adagrad")
"""What updates tables; the last one keeps a state of each row."""

PIPELINES = ("none", "sparse_dist", "prefetch_sparse_dist")

_BY_ROWS = frozenset((ROW_WISE, TABLE_ROW_WISE, GRID))

_BOOKS_BYTES, _SLOT_BYTES = 4, 16
"""Bytes of a cache for each row, and for each row that it has room for."""


@attrs.frozen(kw_only=True)
class Storage:
    """What one shard takes: bytes on the device, on the host, on its drive."""

    hbm_bytes: int
    ddr_bytes: int
    ssd_bytes: int = 0


@attrs.frozen
class ShardSize:
    """The rows and columns of one shard."""

    rows: int
    dim: int


@attrs.frozen(kw_only=True)
class StorageRules:
    """The rules, beside those of time, whose machine and batch they share.

    Attributes:
        perf: Rules of time.
        optimizer: What updates the tables, one of `OPTIMIZERS`.
        pipeline: One of `PIPELINES`, how batches overlap: `sparse_dist` sends the
            indices of the next while one runs, `prefetch_sparse_dist` also fetches
            rows for it; `none` counts inputs and outputs once.
        at_peak: Whether lookups run while the model's memory is at its peak. Where
            it is not, outputs fit below that peak. Counts in a pipeline only.

    """

    perf: PerfRules
    optimizer: str = "sgd"
    pipeline: str = "none"
    at_peak: bool = False

    def __attrs_post_init__(self) -> None:
        """Refuse options that are unknown."""
        one_of("optimizer", self.optimizer, OPTIMIZERS)
        one_of("pipeline", self.pipeline, PIPELINES)

    def storage(
        self,
        table: Table,
        kind: str,
        kernel: str,
        size: ShardSize,
        constraints: Constraints | None = None,
    ) -> Storage:
        """Return the storage that a shard of *size* of *table* takes.

        Args:
            table: What it is a shard of.
            kind: How the table is sharded, one of `PRICED_TYPES`.
            kernel: What looks it up, one of TorchRec's compute kernels.
            size: Its rows and columns; of `data_parallel` the table's.
            constraints: What else is known of the table.

        """
        one_of("sharding type", kind, PRICED_TYPES)
        one_of("compute kernel", kernel, self.perf.topology.kernels)
        said = constraints or Constraints()
        on_device = self.perf.topology.device == "cuda"
        inputs, outputs = self._exchanged(table, kind, size, said.bags)
        cached = kernel in topology.CACHED
        hbm, ddr = self._weights(table, kernel, size, said)
        ssd = 0
        if kernel == topology.KEY_VALUE:
            ssd = hbm + self._rows_bytes(math.ceil(table.bytes), table, size)
            most = math.ceil(table.bytes * _load_factor(said))
            hbm, ddr = min(said.key_value_cache_bytes, most), 0
        held = 0 if self.perf.inference else inputs + outputs
        if on_device:
            # The bytes of inputs and outputs that a pipeline holds at once.
            inputs_held: int
            if self.perf.inference:
                inputs_held = 0
            elif self.pipeline == "none":
                inputs_held = inputs + outputs
            else:
                at_peak = outputs if self.at_peak else 0
                if self.pipeline == "sparse_dist":
                    inputs_held = 2 * inputs + at_peak
                else:
                    burst = (
                        int((1 + 6 / said.prefetch_passes) * inputs) if cached else 0
                    )
                    inputs_held = 3 * inputs + burst + at_peak
            hbm_bytes = hbm + inputs_held
        else:
            hbm_bytes = 0
        return Storage(
            hbm_bytes=hbm_bytes,
            ddr_bytes=ddr if on_device else ddr + held,
            ssd_bytes=ssd,
        )

    def _weights(
        self, table: Table, kernel: str, size: ShardSize, said: Constraints
    ) -> tuple[int, int]:
        """Return the bytes of rows and states on the device and on the host."""
        whole = math.ceil(table.bytes)
        on_host = (
            kernel in topology.IN_HOST_MEMORY or self.perf.topology.device == "cpu"
        )
        hbm, ddr = (0, whole) if on_host else (whole, 0)
        books = 0
        if kernel in topology.CACHED:
            factor = _load_factor(said)
            hbm = round(ddr * factor)
            books = math.ceil(size.rows * (_BOOKS_BYTES + factor * _SLOT_BYTES))
            books = 0 if self.perf.inference else books
        return (
            self._rows_bytes(hbm, table, size) + books,
            self._rows_bytes(ddr, table, size),
        )

    def _rows_bytes(self, whole: int, table: Table, size: ShardSize) -> int:
        """Return a shard's part of *whole* bytes of rows, and of states of them."""
        weights = math.ceil(whole * (size.rows * size.dim) / (table.rows * table.dim))
        if self.perf.inference:
            return weights
        states = _STATES.get(self.optimizer, 1 / table.dim)
        return weights + math.ceil(weights * states)

    def _exchanged(
        self, table: Table, kind: str, size: ShardSize, bags: float
    ) -> tuple[int, int]:
        """Return the bytes of indices that come to a shard, and of rows that leave."""
        if not size.rows * size.dim:
            return 0, 0
        world, batch = self.perf.topology.world, self.perf.batch
        inputs = table.pooling * bags * batch
        if kind in _BY_ROWS:
            inputs /= world.ranks if kind == ROW_WISE else world.per_node
        outputs = min(1.0, table.pooling) * bags * batch if self.perf.pooled else inputs
        times = 1 if kind == DATA_PARALLEL else world.ranks
        sent = math.ceil(outputs * times * size.dim * table.element_bytes)
        return math.ceil(inputs * times * INDEX_BYTES), sent


def _load_factor(said: Constraints) -> float:
    return said.cache_load_factor or topology.CACHE_LOAD_FACTOR
