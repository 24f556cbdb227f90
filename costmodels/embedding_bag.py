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

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.extrapolation import NOWHERE, trust
from perfc.costmodels.maths import ARRAYS, FLOATS, Maths, Number
from perfc.costmodels.memory import L2_SHARE, stream_share
from perfc.costmodels.one_signature import OneSignature
from perfc.costmodels.protocol import (
    Estimate,
    Flags,
    Floats,
    KernelTable,
    Priced,
    Signatures,
)
from perfc.costmodels.target import Target
from perfc.ir import AttrValue, Kernel, PerfcError, Record

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

_UNIFORM = ("uniform", "", None)
"""Popularities of rows that are all the same."""

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
    return touched_rows(rows, count, ARRAYS)


def touched_rows(rows: Number, count: Number, maths: Maths[Number]) -> Number:
    """Return the same of one table or of many."""
    spread = maths.most(rows, 1 + 1e-12)  # the logarithm of one row's is -inf
    missed = maths.expm1(count * maths.log1p(-1 / spread))
    return maths.least(-rows * missed, count)


Each = TypeVar("Each", float, Floats)
"""Of a table that is looked up; a number where all tables of one kernel are alike."""


@attrs.frozen(eq=False)
class Lookups(Generic[Each, Number]):
    """What kernels look up, table by table.

    Attributes:
        rows: Rows of the embedding table.
        row_bytes: Bytes of one of its rows.
        count: Lookups: batch * pooling.
        uniform: Whether all rows are equally popular.
        tables: How many each kernel has.
        spread: From what is of each kernel to what is of each table.
        per_kernel: Sums what is of each table over those of a kernel.
        maths: Of tables.

    """

    rows: Each
    row_bytes: Each
    count: Each
    uniform: Flags | bool
    tables: Number
    spread: Callable[[Number], Each]
    per_kernel: Callable[[Each], Number]
    maths: Maths[Each]

    def distinct(self) -> Each:
        """Return how many different rows are looked up, if all are equally popular."""
        return touched_rows(self.rows, self.count, self.maths)


def lookups_of(kernels: KernelTable) -> Lookups[Floats, Floats]:
    """Return the tables that the kernels look up.

    Raises:
        PerfcError: a table does not give rows, dim and pooling.

    """
    tables = [kernel.params.records("tables") for kernel in kernels.kernels]
    counts = [len(each) for each in tables]
    at = np.repeat(np.arange(len(counts)), counts)
    listed = list(zip(kernels.kernels, tables, strict=True))
    per_kernel = [_format_of(kernel, each) for kernel, each in listed]
    batch, element, extra, uniform = np.array(per_kernel, dtype=np.float64)[at].T
    sizes = np.array(
        [each for kernel, mine in listed for each in _sizes_of(kernel, mine)],
        dtype=np.float64,
    )
    rows, dim, pooling = sizes.T
    return Lookups(
        np.maximum(rows, 1.0),
        np.ceil(dim * element) + extra,
        batch * pooling,
        uniform=uniform.astype(np.bool_),
        tables=np.array(counts, dtype=np.float64),
        spread=lambda amounts: amounts[at],
        per_kernel=lambda amounts: np.bincount(
            at, weights=amounts, minlength=len(counts)
        ).astype(np.float64, copy=False),
        maths=ARRAYS,
    )


def lookups_of_one(one: OneSignature) -> Lookups[Any, float]:
    """Return the tables that one kernel looks up, as arrays.

    Tables that are alike are one number so many times, which costs less.
    """
    tables = one.kernel.params.records("tables")
    alike = tables.count(tables[0]) == len(tables)
    read = tables[:1] if alike else tables
    batch, element, extra, uniform = _format_of(one.kernel, read)
    sizes = np.array(_sizes_of(one.kernel, read), dtype=np.float64)
    count = float(len(tables))
    if alike:
        ((rows, dim, pooling),) = sizes.tolist()
        same: Lookups[float, float] = Lookups(
            max(rows, 1.0),
            math.ceil(dim * element) + extra,
            batch * pooling,
            uniform=uniform,
            tables=count,
            spread=float,
            per_kernel=count.__mul__,
            maths=FLOATS,
        )
        return same
    each: Lookups[Floats, float] = Lookups(
        np.maximum(sizes[:, 0], 1.0),
        np.ceil(sizes[:, 1] * element) + extra,
        batch * sizes[:, 2],
        uniform=np.full(len(sizes), uniform),
        tables=count,
        spread=np.asarray,
        per_kernel=lambda amounts: float(np.add.reduce(amounts)),
        maths=ARRAYS,
    )
    return each


def _sizes_of(
    kernel: Kernel, tables: Sequence[Record]
) -> list[tuple[AttrValue, AttrValue, AttrValue]]:
    """Return rows, dim and pooling of tables."""
    try:
        return [(t["rows"], t["dim"], t["pooling"]) for t in tables]
    except KeyError as error:
        message = (
            f"a table of kernel {kernel.op!r} has no {error}; "
            f"expected rows, dim and pooling: {kernel.params}"
        )
        raise PerfcError(message) from None


def _format_of(
    kernel: Kernel, tables: Sequence[Record]
) -> tuple[float, float, float, bool]:
    """Return the batch, bytes of an element and of a row besides, and if uniform."""
    element, extra = ROW_FORMATS.get(kernel.dtype, (4.0, 0))
    # Of the op, and of each table.
    popularities = [each.get("popularity") for each in (kernel.params, *tables)]
    uniform = all(popularity in _UNIFORM for popularity in popularities)
    return float(kernel.params.integer("batch")), element, float(extra), uniform


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
        seconds, own = self._priced(
            kernels.signatures, lookups_of(kernels), target, ARRAYS
        )
        provenance, sigma_shared = trust(self.sigma_shared, NOWHERE, target)
        return Estimate(
            seconds,
            np.full(count, sigma_shared),
            own,
            [self.name] * count,
            [provenance] * count,
        )

    def claims_one(self, one: OneSignature, target: Target) -> bool:
        """Whether it claims one kernel."""
        forward = one.kernel.params.get("phase", "forward") == "forward"
        return forward and has_tables(one.kernel)

    def estimate_one(self, one: OneSignature, target: Target) -> Priced:
        """Price one kernel."""
        lookups = one.once(lookups_of_one)
        seconds, own = self._priced(one, lookups, target, FLOATS)
        provenance, sigma_shared = trust(self.sigma_shared, NOWHERE, target)
        return Priced(seconds, sigma_shared, own, provenance)

    def _priced(
        self,
        kernels: Signatures[Number],
        lookups: Lookups[Each, Number],
        target: Target,
        maths: Maths[Number],
    ) -> tuple[Number, Number]:
        """Return seconds, and how uncertain each kernel is on its own."""
        busy_s = _busy_seconds(kernels, lookups, target, maths)
        skewed = lookups.maths.where(lookups.uniform, 0.0, 1.0)
        some = lookups.per_kernel(skewed) > 0
        own = maths.where(some, self.sigma_skewed, self.sigma_independent)
        return target.device.kernel_floor_s + START_S + busy_s, own


def _busy_seconds(
    kernels: Signatures[Number],
    lookups: Lookups[Each, Number],
    target: Target,
    maths: Maths[Number],
) -> Number:
    device, each, tables = target.device, lookups.maths, lookups.tables
    batch = maths.most(kernels.param("batch", 1.0), 1.0)
    warps = device.sm_count * device.max_threads_per_sm / device.warp_size
    live_bags = warps * OCCUPANCY

    sector_bytes = each.ceil(lookups.row_bytes / SECTOR_BYTES) * SECTOR_BYTES
    at_once = lookups.spread(maths.least(maths.ceil(live_bags / batch), tables))
    held = USABLE_L2 * device.l2.capacity_bytes / (at_once * sector_bytes)
    distinct = lookups.distinct()
    hit = each.least(held / lookups.rows, 1.0)
    misses = distinct + (lookups.count - distinct) * (1 - hit)

    index_bytes = kernels.param("index_bytes", INDEX_BYTES)
    weight_bytes = 4.0 * maths.flag(kernels.given("weighted"))
    looked_up = lookups.per_kernel(lookups.count)
    streamed = (
        looked_up * (index_bytes + weight_bytes)
        + tables * (batch + 1) * index_bytes
        + kernels.bytes_written
    )
    gathered = lookups.per_kernel(misses * sector_bytes)
    from_l2 = lookups.per_kernel(lookups.count * sector_bytes) + streamed
    memory_rate = device.memory.bytes_per_s * stream_share(target)
    l2_rate = device.l2.bytes_per_s * L2_SHARE
    waits = 3 + looked_up / (batch * maths.most(tables, 1.0)) / LOADS_IN_FLIGHT
    rounds = maths.most(batch * tables / live_bags, 1.0)
    chained_s = rounds * waits * LOAD_LATENCY_S
    moved_s = maths.most((gathered + streamed) / memory_rate, from_l2 / l2_rate)
    return maths.most(moved_s, chained_s)


EMBEDDING_BAG = EmbeddingBagModel()
"""The built-in instance."""
