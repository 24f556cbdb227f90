"""Embedding bags: rows gathered from tables, by their traffic.

Per table with E rows and N = batch * pooling lookups, uniformly popular:

    U = E (1 - (1 - 1/E)^N)                      rows that are touched at all
    misses = U + (N - U) (1 - min(1, C / E))     C rows of it stay in L2
    bytes = 32 ceil(row / 32) misses + indices + offsets + pooled rows

One kernel may look up several tables; one warp serves a bag, table after table,
so that about `live warps / batch` tables share L2 at a time. Rows come in
sectors of 32 bytes. (Lin et al., HiPC'22, with the plain formula as the limit of
a small L2.) Popularity other than uniform is priced as uniform, with a wider
interval: skew can only save traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.extrapolation import NOWHERE, trust
from perfc.costmodels.memory import L2_SHARE, stream_share
from perfc.costmodels.protocol import Estimate, Floats, Indices, KernelTable
from perfc.costmodels.target import Target
from perfc.ir import AttrValue, Kernel, PerfcError

SECTOR_BYTES = 32
USABLE_L2 = 0.9
"""Share of L2 that rows may occupy (Lin et al.)."""

INDEX_BYTES = 8
"""Where the signature does not say `index_bytes`."""

OCCUPANCY = 0.5
"""Live warps over the most that an SM can hold."""

LOAD_LATENCY_S = 0.45e-6
"""One load from device memory; a bag waits for offset, index and rows in turn.

Near what loaded GPUs of these years take; small lookups on V100 agree."""

LOADS_IN_FLIGHT = 4.0
"""Row loads that a warp has under way at once (the kernels unroll by four)."""

START_S = 0.5e-6

ROW_FORMATS: Mapping[str, tuple[float, int]] = MappingProxyType(
    {
        "fp64": (8.0, 0),
        "fp32": (4.0, 0),
        "tf32": (4.0, 0),
        "fp16": (2.0, 0),
        "bf16": (2.0, 0),
        "fp8": (1.0, 0),
        "int8": (1.0, 4),
        "int4": (0.5, 4),
        "int2": (0.25, 4),
    }
)
"""Bytes per element, and per row for its scale, as FBGEMM stores tables."""


def distinct_rows(rows: Floats, count: Floats) -> Floats:
    """Return how many of *rows* equally popular rows *count* lookups touch, on average.

    E (1 - (1 - 1/E)^N): never more than there are rows, or lookups.
    """
    spread = np.maximum(rows, 1 + 1e-12)  # the logarithm of one row's is -inf
    missed = np.expm1(count * np.log1p(-1 / spread))
    touched: Floats = np.minimum(-rows * missed, count)
    return touched


@attrs.frozen(eq=False)
class Lookups:
    """All tables of all kernels, one per row.

    Attributes:
        kernel: Which kernel of the table the row belongs to.
        rows: Rows of the embedding table.
        row_bytes: Bytes of one of its rows.
        count: Lookups: batch * pooling.
        uniform: Whether all rows are equally popular.

    """

    kernel: Indices
    rows: Floats
    row_bytes: Floats
    count: Floats
    uniform: NDArray[np.bool_]

    def distinct(self) -> Floats:
        """Return how many different rows are looked up, if all are equally popular."""
        return distinct_rows(self.rows, self.count)

    def per_kernel(self, amounts: Floats, kernels: int) -> Floats:
        """Sum *amounts* over the tables of each kernel."""
        sums = np.bincount(self.kernel, weights=amounts, minlength=kernels)
        return sums.astype(np.float64, copy=False)


def lookups_of(kernels: KernelTable) -> Lookups:
    """Return the tables that the kernels look up.

    Raises:
        PerfcError: a table does not give rows, dim and pooling.

    """
    per_kernel: list[tuple[float, float, float, bool]] = []
    sizes: list[tuple[AttrValue, AttrValue, AttrValue]] = []
    counts: list[int] = []
    for kernel in kernels.kernels:
        element, extra = ROW_FORMATS.get(kernel.dtype, (4.0, 0))
        tables = kernel.params.records("tables")
        asked = (kernel.params, *tables)  # of the op, and of each table
        uniform = all(p.get("popularity") in {"uniform", "", None} for p in asked)
        batch = kernel.params.integer("batch")
        per_kernel.append((batch, element, extra, uniform))
        counts.append(len(tables))
        try:
            sizes += [(t["rows"], t["dim"], t["pooling"]) for t in tables]
        except KeyError as error:
            message = (
                f"a table of kernel {kernel.op!r} has no {error}; "
                f"expected rows, dim and pooling: {kernel.params}"
            )
            raise PerfcError(message) from None
    at = np.repeat(np.arange(len(counts)), counts)
    batch, element, extra, uniform = np.array(per_kernel, dtype=np.float64)[at].T
    rows, dim, pooling = np.array(sizes, dtype=np.float64).T
    return Lookups(
        kernel=at,
        rows=np.maximum(rows, 1.0),
        row_bytes=np.ceil(dim * element) + extra,
        count=batch * pooling,
        uniform=uniform.astype(np.bool_),
    )


def has_tables(kernel: Kernel) -> bool:
    """Whether the signature of an embedding bag says what it looks up."""
    return bool(kernel.params.get("tables")) and "batch" in kernel.params


@attrs.frozen
class EmbeddingBagModel:
    """Traffic of the lookups, with L2 capture and a ramp for few bags."""

    name: str = "embedding-bag"
    priority: int = 60
    ops: frozenset[str] = frozenset({"embedding_bag"})
    sigma_shared: float = 0.12
    sigma_independent: float = 0.2
    """Both guessed: 6 lookup kernels of V100 scatter by 0.1 to 0.3 and are too few."""
    sigma_skewed: float = 0.5
    """Independent, where popularity is not uniform."""

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim forward lookups that say what they look up."""
        return np.array(
            [
                has_tables(k) and k.params.get("phase", "forward") == "forward"
                for k in kernels.kernels
            ],
            dtype=np.bool_,
        )

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows."""
        count = len(kernels)
        lookups = lookups_of(kernels)
        skewed = lookups.per_kernel((~lookups.uniform).astype(np.float64), count) > 0
        provenance, sigma_shared = trust(self.sigma_shared, NOWHERE, target)
        start_s = target.device.kernel_floor_s + START_S
        return Estimate(
            start_s + _busy_seconds(kernels, lookups, target),
            np.full(count, sigma_shared),
            np.where(skewed, self.sigma_skewed, self.sigma_independent),
            [self.name] * count,
            [provenance] * count,
        )


def _busy_seconds(kernels: KernelTable, lookups: Lookups, target: Target) -> Floats:
    count = len(kernels)
    device = target.device
    batch = np.maximum(kernels.param("batch", 1.0), 1.0)
    tables = lookups.per_kernel(np.ones(len(lookups.rows)), count)
    warps = device.sm_count * device.max_threads_per_sm / device.warp_size
    live_bags = warps * OCCUPANCY

    sector_bytes = np.ceil(lookups.row_bytes / SECTOR_BYTES) * SECTOR_BYTES
    tables_at_once = np.minimum(np.ceil(live_bags / batch), tables)[lookups.kernel]
    held = USABLE_L2 * device.l2.capacity_bytes / (tables_at_once * sector_bytes)
    distinct = lookups.distinct()
    hit = np.minimum(1.0, held / lookups.rows)
    misses = distinct + (lookups.count - distinct) * (1 - hit)

    index_bytes = kernels.param("index_bytes", INDEX_BYTES)
    weight_bytes = np.array([4.0 * k.params.flag("weighted") for k in kernels.kernels])
    looked_up = lookups.per_kernel(lookups.count, count)
    streamed = (
        looked_up * (index_bytes + weight_bytes)
        + tables * (batch + 1) * index_bytes
        + kernels.bytes_written
    )
    gathered = lookups.per_kernel(misses * sector_bytes, count)
    from_l2 = lookups.per_kernel(lookups.count * sector_bytes, count) + streamed
    memory_rate = device.memory.bytes_per_s * stream_share(target)
    l2_rate = device.l2.bytes_per_s * L2_SHARE
    waits = 3 + looked_up / (batch * np.maximum(tables, 1.0)) / LOADS_IN_FLIGHT
    rounds = np.maximum(1.0, batch * tables / live_bags)
    chained_s = rounds * waits * LOAD_LATENCY_S
    moved_s = np.maximum((gathered + streamed) / memory_rate, from_l2 / l2_rate)
    busy_s: Floats = np.maximum(moved_s, chained_s)
    return busy_s


EMBEDDING_BAG = EmbeddingBagModel()
"""The built-in instance."""
