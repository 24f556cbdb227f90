"""Embedding bags: rows gathered from tables, by their traffic.

Per table with E rows and N = batch * pooling lookups, uniformly popular:

    U = E (1 - (1 - 1/E)^N)                      rows that are touched at all
    misses = U + (N - U) (1 - min(1, C / E))     C rows of it stay in L2
    bytes = 32 ceil(row / 32) misses + indices + offsets + pooled rows

One kernel may look up several tables; one warp serves a bag, table after table,
so that about `live warps / batch` tables share L2 at a time. Rows come in
sectors of 32 bytes. (Lin et al., HiPC'22, with the plain formula as the limit of
a small L2.) Rows of fewer than 16 bits an element take no less than those of 16 times
the ratio of their bytes: no rows say what it takes to undo their scales, nor that more
of them stay in L2. Rows of another popularity (`locality/popularity.py`) miss as they
do in
an LRU cache of C rows that is empty when the kernel starts: `locality/row_cache.py`.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import locality
from perfc.costmodels.constants import constants
from perfc.costmodels.embedding.lower_bound import bag_bound_s, bags_bound_s
from perfc.costmodels.kernels import (
    ARRAYS,
    FLOATS,
    NOWHERE,
    PERFC_ROWS,
    Estimate,
    Floats,
    KernelTable,
    Maths,
    Number,
    OneSignature,
    Priced,
    Signatures,
    trust,
)
from perfc.costmodels.machine import Target
from perfc.costmodels.sheets import as_known
from perfc.costmodels.streaming import L2_SHARE, stream_share

SECTOR_BYTES = 32
_CONSTANTS = constants("embedding")

USABLE_L2 = _CONSTANTS.number("usable_l2")
"""Share of L2 that rows may occupy."""

INDEX_BYTES = 8
"""Bytes of an index where the signature does not say `index_bytes`."""

OCCUPANCY = _CONSTANTS.number("occupancy")
"""Live warps over the most that an SM can hold."""

LOAD_LATENCY_S = _CONSTANTS.number("load_latency_s")
"""One load from device memory; a bag waits for offset, index and rows in turn."""

LOADS_IN_FLIGHT = _CONSTANTS.number("loads_in_flight")
"""Row loads that a warp has under way at once."""

START_S = _CONSTANTS.number("start_s")
"""Added to the target's kernel floor."""

WARP_COLUMNS = 32
"""Columns of a row that one warp of PyTorch's own kernel adds, one a thread.

See `EmbeddingBag_updateOutputKernel_sum_mean` in `EmbeddingBag.cu`.
"""

# What follows is said by perfc's rows of H100.
OWN_START_S = _CONSTANTS.number("own_start_s")
OWN_FIRST_S = _CONSTANTS.number("own_first_s")
"""Before the first row, of each warp's columns."""

OWN_LOOKUP_S = _CONSTANTS.number("own_lookup_s")
OWN_MISS_S = _CONSTANTS.number("own_miss_s")
"""Each lookup, one after another; longer where L2 does not hold its row."""

OWN_WARPS = _CONSTANTS.number("own_warps")
"""Warps of an SM that add at the same time."""

OWN_SHARE = _CONSTANTS.number("own_share")
"""Share of the memory's rate that they reach."""


@attrs.frozen
class EmbeddingBagModel:
    """Traffic of the lookups, with L2 capture and a ramp for few bags."""

    name: str = "embedding-bag"
    priority: int = 60
    ops: frozenset[str] = frozenset({"embedding_bag"})
    sigma_shared: float = _CONSTANTS.number("sigma_bag_shared")
    sigma_independent: float = _CONSTANTS.number("sigma_bag_independent")
    sigma_skewed: float = _CONSTANTS.number("sigma_bag_skewed")
    """Independent, where popularity is not uniform."""

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim forward lookups that say what they look up."""
        listed = kernels.once(locality.listed_tables)
        return listed.forward & listed.usable

    def lower_bound(self, kernels: KernelTable, target: Target) -> Floats:
        """Return a lower bound of each kernel, which reads no row twice."""
        return bags_bound_s(kernels, target)

    def lower_bound_of_one(self, one: OneSignature, target: Target) -> float:
        """Return a lower bound of one kernel, which reads no row twice."""
        return bag_bound_s(one, target)

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows."""
        count = len(kernels)
        seconds, own = self._priced(
            kernels.signatures, locality.lookups_of(kernels), target, ARRAYS
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
        return forward and locality.has_tables(one.kernel)

    def estimate_one(self, one: OneSignature, target: Target) -> Priced:
        """Price one kernel."""
        lookups = one.once(locality.lookups_of_one)
        seconds, own = self._priced(one, lookups, target, FLOATS)
        provenance, sigma_shared = trust(self.sigma_shared, NOWHERE, target)
        return Priced(seconds, sigma_shared, own, provenance)

    def _priced(
        self,
        kernels: Signatures[Number],
        lookups: locality.Lookups[locality.Each, Number],
        target: Target,
        maths: Maths[Number],
    ) -> tuple[Number, Number]:
        """Return seconds, and how uncertain each kernel is on its own."""
        busy_s = _busy_seconds(kernels, lookups, target, maths)
        if maths.any(_narrower(lookups, maths)):
            # No less than rows of 16 bits take times the ratio of their bytes.
            halves = attrs.evolve(lookups, row_bytes=_HALF_BYTES * lookups.dim)
            wide_s = _busy_seconds(kernels, halves, target, maths)
            busy_s = maths.most(busy_s, _narrower(lookups, maths) * wide_s)
        some = lookups.per_kernel(lookups.uneven) > 0
        own = maths.where(some, self.sigma_skewed, self.sigma_independent)
        return target.device.kernel_floor_s + busy_s, own


def _narrower(
    lookups: locality.Lookups[locality.Each, Number], maths: Maths[Number]
) -> Number:
    """Return the bytes of rows over those in 16 bits; 0 where they are no narrower."""
    narrow = lookups.per_kernel(lookups.count * lookups.row_bytes)
    wide = lookups.per_kernel(lookups.count * (_HALF_BYTES * lookups.dim))
    share = narrow / maths.most(wide, 1.0)
    return maths.where((share < 1.0) & (narrow > 0), share, 0.0)


_HALF_BYTES = 2.0
"""Size of an element of 16 bits."""


def _busy_seconds(
    kernels: Signatures[Number],
    lookups: locality.Lookups[locality.Each, Number],
    target: Target,
    maths: Maths[Number],
) -> Number:
    device, each, tables = target.device, lookups.maths, lookups.tables
    batch = lookups.batch
    live_bags = _live_bags(target)
    # More bags than that at a time would only crowd L2.
    usual_bags = _live_bags(as_known(target))

    sector_bytes = each.ceil(lookups.row_bytes / SECTOR_BYTES) * SECTOR_BYTES
    at_once = lookups.spread(maths.least(maths.ceil(usual_bags / batch), tables))
    held = USABLE_L2 * device.l2.capacity_bytes / (at_once * sector_bytes)
    misses = lookups.misses(held)

    index_bytes = kernels.param("index_bytes")
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
    found_s = START_S + maths.most(moved_s, chained_s)
    if device.compute_capability not in PERFC_ROWS:
        return found_s
    moved = gathered + streamed, from_l2
    own_s = OWN_START_S + _own_seconds(moved, misses, kernels, lookups, target, maths)
    # Many tables at once are FBGEMM's kernel, of which there are no such rows.
    return maths.where(tables <= 1, own_s, found_s)


def _own_seconds(  # noqa: PLR0913, PLR0917 - all are of one formula
    moved: tuple[Number, Number],
    misses: locality.Each,
    kernels: Signatures[Number],
    lookups: locality.Lookups[locality.Each, Number],
    target: Target,
    maths: Maths[Number],
) -> Number:
    """Return the seconds of PyTorch's own kernel: its warps add row after row.

    Args:
        moved: Bytes from memory, and from L2.
        misses: Lookups of each table whose rows L2 does not hold.
        kernels: Of which they are.
        lookups: All of them.
        target: The GPU.
        maths: Of one kernel or of many.

    """
    device, each, spread = target.device, lookups.maths, lookups.spread
    # One addition for each number of a row that is looked up.
    numbers = maths.most(kernels.flops, 1.0)
    number_bytes = lookups.per_kernel(lookups.count * lookups.row_bytes) / numbers
    number_bytes = maths.where(kernels.flops > 0, number_bytes, 4.0)
    warps = each.ceil(lookups.row_bytes / spread(WARP_COLUMNS * number_bytes))
    batch = spread(lookups.batch)
    waited_s = batch * OWN_FIRST_S + lookups.count * OWN_LOOKUP_S + misses * OWN_MISS_S
    live = device.sm_count * OWN_WARPS
    all_warps = lookups.per_kernel(batch * warps)
    chained_s = lookups.per_kernel(warps * waited_s) / maths.least(all_warps, live)
    from_memory, from_l2 = moved
    memory_s = from_memory / (device.memory.bytes_per_s * OWN_SHARE)
    moved_s = maths.most(memory_s, from_l2 / device.l2.bytes_per_s)
    return maths.sqrt(moved_s * moved_s + chained_s * chained_s)


def _live_bags(target: Target) -> float:
    device = target.device
    warps = device.sm_count * device.max_threads_per_sm / device.warp_size
    return warps * OCCUPANCY


EMBEDDING_BAG = EmbeddingBagModel()
"""The built-in instance."""
