"""How long TorchRec's planner thinks that a shard takes.

The formulas are those of `EmbeddingPerfEstimator`
(`torchrec/distributed/planner/shard_estimators.py`), quirks and all: row-wise tables
pay no penalty for few columns, and an all-reduce always takes the network.
"""

from __future__ import annotations

import functools
import math
import operator

import attrs
import numpy as np

from perfc.ir import UsageError
from perfc.passes import DATA_PARALLEL
from perfc.passes.embeddings import GRID, ROW_WISE, SHARDING_TYPES, TABLE_ROW_WISE
from perfc.planning.plans import Table, one_of, positive
from perfc.planning.reference.topology import (
    FUSED_UVM_CACHING,
    Collective,
    Topology,
)

PRICED_TYPES = (*SHARDING_TYPES, "table_column_wise")
"""What TorchRec calls ways to shard a table. The last one is `column_wise`, all parts
on one node; it costs the same."""

INDEX_BYTES = 8
"""Bytes of an index, whatever the model has: fbgemm reads 64 bits."""

_LEAST_DIM = 32
"""A warp reads no less than so many columns."""

_FULL_DIM, _HALF_DIM = 128, 64
_HALF_PENALTY, _QUARTER_PENALTY = 1.15, 1.75
"""Factors on the time of rows of less than `_FULL_DIM` and `_HALF_DIM` columns."""

_BATCHED_COPY = 2.455
_DENSE_OPTIMIZER = 9.22
"""How many times the bytes are moved: by the copy of gradients, by a dense update."""

_WEIGHTED = 1.1
"""Time of the gradient of weights that come with indices, in times of forward."""


@attrs.frozen(kw_only=True)
class CacheStats:
    """What a table's lookups miss in a cache.

    Attributes:
        lookups: Distinct rows that the batches of all ranks ask for.
        histogram: Lookups by stack distance: a bin for each n-th of the rows, of
            which an LRU cache of at least that many rows serves all.

    """

    lookups: float
    histogram: tuple[float, ...] = attrs.field(converter=tuple[float, ...])

    def __attrs_post_init__(self) -> None:
        """Refuse what no one can have counted."""
        if not self.histogram:
            msg = "cache statistics: the histogram is empty, expected a bin at least"
            raise UsageError(msg)
        counts = (self.lookups, *self.histogram)
        if not all(math.isfinite(count) and count >= 0 for count in counts):
            msg = f"cache statistics: expected counts of 0 or more, found {counts}"
            raise UsageError(msg)

    def miss_rate(self, load_factor: float, rows: int) -> float:
        """Return the part of lookups that a cache of *load_factor* x *rows* misses.

        A cache of k rows serves the bin that holds distance k - 1, and all before it.
        Distances are single precision, as in TorchRec.
        """
        counts = np.cumsum(np.asarray(self.histogram, dtype=np.float64))
        if not counts[-1]:
            return 0.0
        edges = np.linspace(0, rows, len(counts) + 1, dtype=np.float32)
        farthest = np.float32(load_factor * rows) - np.float32(1)
        bin_ = int(np.searchsorted(edges, farthest, side="right"))
        if bin_ == 0:
            return 1.0
        return 1.0 - float(counts[min(bin_, len(counts)) - 1] / counts[-1])


def _part(_: object, __: object, value: float | None) -> None:
    if value is not None and not 0 <= value <= 1:
        msg = f"cache_load_factor {value}: expected a part of the rows, 0 to 1"
        raise UsageError(msg)


def _not_below_nought(_: object, __: object, value: int) -> None:
    if value < 0:
        msg = f"key_value_cache_bytes {value}: expected 0 or more"
        raise UsageError(msg)


@attrs.frozen(kw_only=True)
class Constraints:
    """What is said of one table beside its size, as TorchRec's `ParameterConstraints`.

    Attributes:
        bags: Bags of a sample: features that share the table, or poolings of each.
        cache_load_factor: The part of its rows that a cache keeps on the device; 0.2
            where none is said, and then no rows are fetched ahead.
        cache_stats: What its lookups miss.
        prefetch: Whether missing rows are fetched while the batch before runs.
        prefetch_passes: In how many passes they are.
        key_value_cache_bytes: What a key-value store keeps on the device at most.

    """

    bags: float = attrs.field(default=1.0, validator=positive)
    cache_load_factor: float | None = attrs.field(default=None, validator=_part)
    cache_stats: CacheStats | None = None
    prefetch: bool = False
    prefetch_passes: int = attrs.field(default=1, validator=positive)
    key_value_cache_bytes: int = attrs.field(default=0, validator=_not_below_nought)


@attrs.frozen(kw_only=True)
class CommBytes:
    """Bytes of an element that is sent, where it is not sent as the table has it.

    A codec of TorchRec's `qcomm` sets these: 2 for fp16 and bf16, 1 for fp8 and int8.
    """

    forward_all_to_all: float | None = None
    backward_all_to_all: float | None = None
    forward_reduce_scatter: float | None = None
    backward_all_gather: float | None = None


@attrs.frozen(kw_only=True)
class Perf:
    """The times of one shard, in seconds."""

    forward_compute_s: float
    forward_comms_s: float
    backward_compute_s: float
    backward_comms_s: float
    prefetch_s: float

    @property
    def total_s(self) -> float:
        """All of it, one after the other."""
        return float(functools.reduce(operator.add, attrs.astuple(self)))


@attrs.frozen(kw_only=True)
class _Traffic:
    """Bytes that a rank moves for a shard in an iteration."""

    read: float
    """Indices and rows."""
    forward: float
    """Pooled rows."""
    backward: float
    """Their gradients."""
    penalty: float = 1.0


@attrs.frozen(kw_only=True)
class PerfRules:
    """The rules, for one machine and one way to run a model on it.

    Attributes:
        topology: The machine.
        batch: Samples of each rank.
        pooled: Whether rows are summed to one a bag, or sent as they are.
        inference: Whether there is no backward pass.
        comm_bytes: What pooled rows and gradients are sent as.

    """

    topology: Topology
    batch: int = attrs.field(default=512, validator=positive)
    pooled: bool = True
    inference: bool = False
    comm_bytes: CommBytes = CommBytes()

    def perf(
        self,
        table: Table,
        kind: str,
        kernel: str,
        dim: int,
        constraints: Constraints | None = None,
    ) -> Perf:
        """Return the times of a shard of *dim* columns, whichever its rows.

        Args:
            table: What it is a shard of.
            kind: How the table is sharded, one of `PRICED_TYPES`.
            kernel: What looks it up, one of TorchRec's compute kernels.
            dim: Its columns.
            constraints: What else is known of the table.

        """
        one_of("sharding type", kind, PRICED_TYPES)
        said = constraints or Constraints()
        bytes_per_s = self.topology.lookup_bytes_per_s(
            kernel, said.cache_load_factor, prefetch=said.prefetch
        )
        traffic = self._traffic(table, kind, dim, said.bags)
        compute_s = (traffic.read + traffic.forward) * traffic.penalty / bytes_per_s
        forward_s, backward_s = self._comms_s(table, kind, dim, said.bags)
        if self.inference:
            return Perf(
                forward_compute_s=compute_s,
                forward_comms_s=forward_s,
                backward_compute_s=0.0,
                backward_comms_s=0.0,
                prefetch_s=0.0,
            )
        seconds = compute_s * self.topology.backward_multiplier
        if table.weighted:
            seconds *= self.topology.weighted_backward_multiplier
            seconds += compute_s * _WEIGHTED
        return Perf(
            forward_compute_s=compute_s,
            forward_comms_s=forward_s,
            backward_compute_s=seconds,
            backward_comms_s=backward_s + _copied(table, kind, traffic) / bytes_per_s,
            prefetch_s=self._prefetch_s(table, kind, kernel, dim, said),
        )

    def _traffic(self, table: Table, kind: str, dim: int, bags: float) -> _Traffic:
        lookups, outputs = self._counts(table, kind, bags)
        indices = math.ceil(lookups * INDEX_BYTES) * (2 if table.weighted else 1)
        if kind == DATA_PARALLEL:
            sent = (table.element_bytes, table.element_bytes)
        else:
            # The bytes of an element that the ranks of a shard exchange.
            said = self.comm_bytes
            both = (said.forward_all_to_all, said.backward_all_to_all)
            if kind in _ON_NODES or (kind == ROW_WISE and self.pooled):
                both = (said.forward_reduce_scatter, said.backward_all_gather)
            sent = _or_else(both[0], table), _or_else(both[1], table)
        by_rows = kind in _BY_ROWS or kind == DATA_PARALLEL
        columns = dim if by_rows else max(dim, _LEAST_DIM)
        return _Traffic(
            read=indices + lookups * columns * table.element_bytes,
            forward=outputs * dim * sent[0],
            backward=outputs * dim * sent[1],
            penalty=1.0 if by_rows else _penalty(dim),
        )

    def _counts(self, table: Table, kind: str, bags: float) -> tuple[float, float]:
        """Return how many rows a rank looks up, and how many it gives back."""
        world = self.topology.world
        lookups = table.pooling * bags * self.batch
        if kind == DATA_PARALLEL:
            return lookups, bags * self.batch if self.pooled else lookups
        if kind in _BY_ROWS:
            lookups /= world.ranks if kind == ROW_WISE else world.per_node
        outputs = bags * self.batch if self.pooled else lookups
        return lookups * world.ranks, outputs * world.ranks

    def _comms_s(
        self, table: Table, kind: str, dim: int, bags: float
    ) -> tuple[float, float]:
        """Return the seconds of the collectives of forward and of backward."""
        world = self.topology.world
        if kind == DATA_PARALLEL:
            return 0.0, self._all_reduce_s(table)
        traffic = self._traffic(table, kind, dim, bags)
        if kind not in _BY_ROWS:
            speed = self._speed("all_to_all", world.ranks, world.per_node)
            return traffic.forward / speed, traffic.backward / speed
        ranks = world.per_node if kind in _ON_NODES else world.ranks
        scatter = self._speed("reduce_scatter", ranks, world.per_node)
        gather = self._speed("all_gather", ranks, world.per_node)
        forward_s, backward_s = traffic.forward / scatter, traffic.backward / gather
        if kind in _ON_NODES and world.nodes > 1:
            elements = self._counts(table, kind, bags)[1] * dim / world.per_node
            speed = self._speed("all_to_all", world.nodes, 1)
            said = self.comm_bytes
            forward_s += elements * _or_else(said.forward_all_to_all, table) / speed
            backward_s += elements * _or_else(said.backward_all_to_all, table) / speed
        return forward_s, backward_s

    def _speed(self, collective: Collective, ranks: int, per_node: int) -> float:
        return self.topology.network.bytes_per_s(collective, ranks, per_node)

    def _all_reduce_s(self, table: Table) -> float:
        """Return the seconds that the gradient of a whole table takes."""
        world = self.topology.world
        nodes = min(world.nodes, 2)
        speed = self._speed("all_reduce", world.ranks, world.per_node)
        seconds = table.bytes * (2 * nodes - 1) / nodes / speed
        return seconds * (2 if world.nodes > nodes else 1)

    def _prefetch_s(
        self, table: Table, kind: str, kernel: str, dim: int, said: Constraints
    ) -> float:
        """Return the seconds in which missing rows come over the host's link."""
        factor, stats = said.cache_load_factor, said.cache_stats
        cached = kernel == FUSED_UVM_CACHING and kind != DATA_PARALLEL
        if factor is None or stats is None or not cached:
            return 0.0
        fetched = stats.miss_rate(factor, table.rows) * stats.lookups
        world = self.topology.world
        if kind in _BY_ROWS:
            fetched /= world.per_node if kind in _ON_NODES else world.ranks
        return fetched * dim * table.element_bytes / self.topology.host_link_bytes_per_s


_ON_NODES = frozenset((TABLE_ROW_WISE, GRID))
_BY_ROWS = _ON_NODES | {ROW_WISE}


def _or_else(element_bytes: float | None, table: Table) -> float:
    return table.element_bytes if element_bytes is None else element_bytes


def _penalty(dim: int) -> float:
    if dim >= _FULL_DIM:
        return 1.0
    return _HALF_PENALTY if dim >= _HALF_DIM else _QUARTER_PENALTY


def _copied(table: Table, kind: str, traffic: _Traffic) -> float:
    """Return the bytes that backward is priced to move besides those of the lookup."""
    if kind == DATA_PARALLEL:
        return table.bytes * _DENSE_OPTIMIZER
    return traffic.backward * _BATCHED_COPY if kind in _BY_ROWS else 0.0
