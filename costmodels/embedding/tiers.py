"""Embedding tables in host memory: rows that are read over the host link.

`tier = "uvm"`: the table lies in host memory that kernels address (unified virtual
memory). Each row that misses L2 crosses the link as it is read (zero copy), and an
updated one twice. So do the optimizer's states of its elements, which are in no cache.

`tier = "uvm-caching"`: `cache` of the rows are held in device memory. Before a lookup
the rows of its batch that are not there are brought in, and those that they push out
are written back, changed or not (`row_cache_fill`): `batch_fill` of
`locality/row_cache.py` says how many. Rows that find no place cross the link when they
are read.

These are FBGEMM's `fused_uvm` and `fused_uvm_caching`. A kernel takes as long as the
link, or as its work in device memory, whichever is more. Where the target's sheet says
what the ranks of a node share, so do its uplinks, the links between its sockets, and
its memory, which rows reach at a share of its rate (`costmodels/tiers/host.py`).

Tables of other tiers have kernels of their own (`far_tables.py`).
"""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import embedding, locality, tiers
from perfc.costmodels.constants import constants
from perfc.costmodels.embedding import places
from perfc.costmodels.embedding.bag import EMBEDDING_BAG, START_S, USABLE_L2
from perfc.costmodels.embedding.update import EMBEDDING_UPDATE
from perfc.costmodels.kernels import (
    NOWHERE,
    Estimate,
    Flags,
    KernelTable,
    OneSignature,
    Priced,
    one_of,
    trust,
    uniform_estimate,
)
from perfc.costmodels.locality import (
    has_tables,
    listed_tables,
    popularity_of,
    row_bytes_of,
)
from perfc.costmodels.machine import Target
from perfc.ir import OPTIMIZER_STATES, Kernel, Record

ZERO_COPY_SHARE = constants("embedding").number("zero_copy_share")
"""Share of the rate of large copies that rows reach, one by one."""

_SIGMA = constants("embedding").number("sigma_tiers")


@attrs.frozen
class EmbeddingTiersModel:
    """The host link, and what is behind it, where a table is not in device memory."""

    name: str = "embedding-tiers"
    priority: int = 72
    ops: frozenset[str] = frozenset(
        {"embedding_bag", places.ROW_CACHE_FILL, *places.FAR_KERNELS}
    )
    sigma_shared: float = _SIGMA
    sigma_independent: float = _SIGMA

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim what reads tables in host memory, and what reads others for it.

        The memory of a CPU's host is its own; a server's cores share lookups.
        """
        far: Flags = one_of(kernels.op, places.FAR_KERNELS)
        listed = kernels.once(listed_tables)
        if target.device.synchronous:
            own = [embedding.is_on_server(kernel, target) for kernel in kernels.kernels]
            return far | (np.array(own, dtype=np.bool_) & listed.usable)
        found: Flags = listed.tiered | (kernels.op == places.ROW_CACHE_FILL)
        return far | (found & listed.usable)

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows."""
        signatures = [OneSignature(kernel) for kernel in kernels.kernels]
        seconds = [self.estimate_one(one, target).seconds for one in signatures]
        provenance, sigma_shared = trust(self.sigma_shared, NOWHERE, target)
        return uniform_estimate(
            np.array(seconds, dtype=np.float64),
            model=self.name,
            provenance=provenance,
            sigma_shared=sigma_shared,
            sigma_independent=self.sigma_independent,
        )

    def claims_one(self, one: OneSignature, target: Target) -> bool:
        """Whether it claims one kernel."""
        if one.op in places.FAR_KERNELS:
            return True
        if target.device.synchronous:
            return embedding.is_on_server(one.kernel, target) and has_tables(one.kernel)
        return _is_tiered(one.kernel)

    def estimate_one(self, one: OneSignature, target: Target) -> Priced:
        """Price one kernel."""
        provenance, sigma_shared = trust(self.sigma_shared, NOWHERE, target)
        if one.op in places.FAR_KERNELS:
            far_s = embedding.far_seconds(one, target)
            return Priced(far_s, sigma_shared, self.sigma_independent, provenance)
        if target.device.synchronous:
            own_s = embedding.on_server_s(one.kernel, target)
            return Priced(own_s, sigma_shared, self.sigma_independent, provenance)
        linked_s = target.device.kernel_floor_s + START_S + _link_seconds(one, target)
        local_s = 0.0
        if one.op != places.ROW_CACHE_FILL:
            forward = one.kernel.params.get("phase", "forward") == "forward"
            local = EMBEDDING_BAG if forward else EMBEDDING_UPDATE
            local_s = local.estimate_one(one, target).seconds
        seconds = max(linked_s, local_s)
        return Priced(seconds, sigma_shared, self.sigma_independent, provenance)


def _is_tiered(kernel: Kernel) -> bool:
    if kernel.op == places.ROW_CACHE_FILL:
        return has_tables(kernel)
    for table in kernel.params.records("tables"):  # a loop: quicker than `any`
        if table.reader("tier"):
            return has_tables(kernel)
    return False


def _link_seconds(one: OneSignature, target: Target) -> float:
    """Return how long rows of all tables take over the host link, there and back."""
    kernel = one.kernel
    forward = kernel.params.get("phase", "forward") == "forward"
    read = written = 0.0
    for table in kernel.params.records("tables"):
        if not table.get("tier"):
            continue
        size = row_bytes_of(kernel, table)
        fetched, straight = host_rows(kernel, table, target)
        if one.op == places.ROW_CACHE_FILL:
            read, written = read + fetched * size, written + fetched * size
        else:
            read = read + straight * size
            written = written if forward else written + straight * size
            states = 0.0 if forward else _state_bytes(kernel, table)
            read, written = read + states, written + states
    # How long a rank's bytes take from the host's memory, and back to it.
    link, host = target.host_link, target.resources
    if host is None:
        across = read / link.h2d_bytes_per_s + written / link.d2h_bytes_per_s
        return across / ZERO_COPY_SHARE
    ranks = embedding.ranks_together(target, kernel.params.integer("ranks", 1))
    ways = (
        tiers.host_ways(host, rate, ranks, nbytes)
        for rate, nbytes in (
            (link.h2d_bytes_per_s, read),
            (link.d2h_bytes_per_s, written),
        )
    )
    across = sum(max(way.values()) for way in ways)
    memory = tiers.RANDOM_SHARE * host.dram_bytes_per_s
    return max(across / ZERO_COPY_SHARE, ranks * (read + written) / memory)


def _state_bytes(kernel: Kernel, table: Record) -> float:
    """Return the bytes that an update reads of the states of the rows that it touches.

    Those of single elements, fp32, lie beside the table, never in a cache.
    """
    states = OPTIMIZER_STATES.get(str(kernel.params.get("optimizer") or ""), ())
    rows, pooling = max(table.integer("rows"), 1), float(str(table["pooling"]))
    curve = locality.row_curve(popularity_of(kernel, table), rows, pooling)
    touched = curve.touched(kernel.params.integer("batch") * pooling)
    return touched * table.integer("dim") * 4.0 * states.count("element")


def host_rows(kernel: Kernel, table: Record, target: Target) -> tuple[float, float]:
    """Return how many rows a batch brings into a table's cache, and reads past it.

    Args:
        kernel: The lookup, or the update.
        table: One of its tables, with a tier.
        target: Where it runs.

    """
    rows = max(table.integer("rows"), 1)
    pooling = float(str(table["pooling"]))
    lookups = kernel.params.integer("batch") * pooling
    popularity = popularity_of(kernel, table)
    curve = locality.row_curve(popularity, rows, pooling)
    if table.get("tier") == places.UVM_CACHING:
        cached = math.floor(rows * float(str(table.get("cache", 0.0))))
        filled = locality.batch_fill(curve, cached, lookups)
        return filled.fetched - min(filled.straight, filled.fetched), filled.straight
    if kernel.params.get("phase", "forward") != "forward":
        return 0.0, curve.touched(lookups)  # sorted: each row once
    held = USABLE_L2 * target.device.l2.capacity_bytes / row_bytes_of(kernel, table)
    return 0.0, locality.cold_misses(popularity, rows, held, lookups, pooling)


EMBEDDING_TIERS = EmbeddingTiersModel()
"""The built-in instance."""
