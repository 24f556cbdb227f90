"""Places where tables lie: their names, and the device memory that they take there."""

from __future__ import annotations

import math

from perfc.ir import Record

UVM = "uvm"
UVM_CACHING = "uvm-caching"
"""Tiers of tables besides device memory, which has no name."""

HOST, REMOTE = "host", "remote"
"""Places of tables that others look up than the device."""

DRAM = "dram"
"""The tier that is the host's memory."""

ROW_CACHE_FILL = "row_cache_fill"
"""The kernel that brings rows into the cache, and others back."""

FAR_KERNELS = (
    "tier_read",
    "tier_write",
    "tier_fill",
    "host_lookup",
    "pooled_copy",
    "server_lookup",
    "server_transfer",
    "server_request",
)
"""Kernels of tables that none of the device reads, which `far_tables.py` prices."""


def device_bytes(table: Record, nbytes: int) -> int:
    """Return the bytes of device memory that a table of *nbytes* takes in its tier.

    Of one in host memory without a cache, and of one that others look up, none. A
    cache needs beside its rows 4 bytes for each row of the table and 16 for each that
    it holds (TorchRec's planner, BSD-3).
    """
    tier = table.get("tier")
    if tier in (UVM, HOST, REMOTE):
        return 0
    if not tier:
        return nbytes
    share, rows = float(str(table.get("cache", 0.0))), table.integer("rows")
    return math.ceil(nbytes * share + rows * (4 + 16 * share))
