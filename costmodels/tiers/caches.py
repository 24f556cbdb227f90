"""Caches in front of a tier: rows of several tables in one memory, and pooled bags.

An LRU cache of several tables holds of each what the last T queries looked up (Che,
2002, with one T for all, as replacement knows no tables):

    sum over tables of (row bytes + overhead) U(n T) = bytes of the cache

with n lookups a query and U rows touched (`locality/unique_rows.py`). Of each table the
misses are those of a cache of its own with that many rows. Lookups of different queries
are independent; inside a query rows are taken to differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfc.costmodels import locality
from perfc.costmodels.constants import constants
from perfc.costmodels.locality import Popularity
from perfc.costmodels.tiers.table import TieredTable
from perfc.ir import PerfcError
from perfc.ir.support import format_bytes

ROW_OVERHEAD_BYTES = constants("tiers").number("row_overhead_bytes")
"""Bookkeeping beside each row of a cache."""

POOLED_KEY_BYTES = constants("tiers").number("pooled_key_bytes")
"""What names a bag in a cache of pooled rows."""

_HALVINGS = 100


def check_cache(cache_bytes: float, memory_bytes: float, what: str = "DRAM") -> None:
    """Refuse a cache that its memory has no room for."""
    if not 0 <= cache_bytes <= memory_bytes:
        msg = (
            f"a cache of {format_bytes(cache_bytes)}: expected at most the "
            f"{format_bytes(memory_bytes)} of {what}"
        )
        raise PerfcError(msg)


def cached_rows(
    cache_bytes: float, row_bytes: float, overhead: float = ROW_OVERHEAD_BYTES
) -> float:
    """Return how many rows a cache of one table holds."""
    return math.floor(cache_bytes / (row_bytes + overhead))


def pooled_hit_share(
    popularity: Popularity, bags: int, cache_bytes: float, pooled_bytes: float
) -> float:
    """Return the share of bags whose pooled row is in an LRU cache.

    Args:
        popularity: Of bags: how often the same query comes again.
        bags: That there are.
        cache_bytes: Of the cache.
        pooled_bytes: Of a pooled row: columns times 4 for fp32.

    """
    held = cached_rows(cache_bytes, pooled_bytes, POOLED_KEY_BYTES)
    return 1 - locality.lru_miss_share(popularity, bags, held)


def shared_cache(
    tables: Sequence[TieredTable],
    cache_bytes: float,
    overhead: float = ROW_OVERHEAD_BYTES,
) -> list[float]:
    """Return how many rows of each table an LRU cache of all of them holds.

    Args:
        tables: With lookups a query that differ in how often they are.
        cache_bytes: Of the cache, overhead included.
        overhead: Bytes beside each row.

    """
    kinds = [(t.popularity, t.rows, t.pooling, t.lookups) for t in tables]
    curves = {kind: locality.row_curve(*kind[:3]) for kind in kinds}
    sizes = [table.row_bytes + overhead for table in tables]

    def held(queries: float) -> list[float]:
        found = {
            kind: curve.touched(kind[3] * queries) for kind, curve in curves.items()
        }
        return [found[kind] for kind in kinds]

    def filled(rows: Sequence[float]) -> float:
        return math.fsum(n * size for n, size in zip(rows, sizes, strict=True))

    read = [float(table.rows) if table.lookups else 0.0 for table in tables]
    if filled(read) <= cache_bytes:
        return read
    low, high = 0.0, 1.0
    while filled(held(high)) < cache_bytes and high < 1 / math.ulp(1.0):
        low, high = high, high * 4
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if filled(held(middle)) < cache_bytes else (low, middle)
        )
    return held(low)
