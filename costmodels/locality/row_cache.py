"""Hits and misses of caches of rows, under independent lookups.

With U(N) rows touched by N lookups (`unique_rows.py`), an LRU cache of C rows holds
those of the last T lookups, U(T) = C (Che, 2002), and a lookup misses with the
probability U'(T) that it touches a row anew. From an empty cache,

    misses of N lookups = U(min(T, N)) + (N - T)+ U'(T)

A cache that is filled batch by batch (FBGEMM's UVM caching, HugeCTR's HPS, parameter
servers) holds the rows of the last W batches of n lookups, U(W n) = C, and fetches
U((W + 1) n) - U(W n) a batch. FIFO and random replacement hold a row for a while
whatever its lookups: p T / (1 + p T) of the time (Gelenbe, 1973).
"""

from __future__ import annotations

import math

import attrs
import numpy as np

from perfc.costmodels.locality.bins import RankBins
from perfc.costmodels.locality.inclusion_probabilities import FEW_ROWS, inclusion_shares
from perfc.costmodels.locality.popularity import Histogram, Popularity, rank_bins
from perfc.costmodels.locality.unique_rows import RowCurve, row_curve


def lru_miss_share(popularity: Popularity, rows: int, cached: float) -> float:
    """Return the share of lookups whose row is not in a warm LRU cache.

    Args:
        popularity: Of the rows.
        rows: Of the table.
        cached: Rows that the cache holds.

    """
    if cached >= rows:
        return 0.0
    if cached <= 0:
        return 1.0
    if isinstance(popularity, Histogram):
        curve = row_curve(popularity, rows)
        until = curve.lookups_until(cached)
        return 0.0 if math.isinf(until) else curve.novelty(until)
    bins = rank_bins(popularity, rows)
    held = inclusion_shares(popularity, rows, cached)
    return min(float((bins.rows * bins.probability) @ (1 - held)), 1.0)


def fifo_miss_share(popularity: Popularity, rows: int, cached: float) -> float:
    """Return the miss share of a cache that replaces the oldest or a random row."""
    if cached >= rows:
        return 0.0
    if cached <= 0:
        return 1.0
    bins = rank_bins(popularity, rows)
    stay = bins.probability * _stay(bins, cached)
    return float((bins.rows * bins.probability) @ (1 / (1 + stay)))


def _stay(bins: RankBins, cached: float) -> float:
    """Return T of FIFO in lookups, by halving its logarithm."""
    low, high = -1.0, 700.0
    for _ in range(200):
        middle = (low + high) / 2
        stay = bins.probability * math.exp(middle)
        if float(bins.rows @ (stay / (1 + stay))) < cached:
            low = middle
        else:
            high = middle
    return math.exp(low)


def static_miss_share(popularity: Popularity, rows: int, cached: float) -> float:
    """Return the miss share of a cache that holds the most popular rows (LFU)."""
    return 1 - rank_bins(popularity, rows).share_of_first(min(cached, rows))


def cold_misses(
    popularity: Popularity, rows: int, cached: float, lookups: float, pooling: float = 1
) -> float:
    """Return how many of so many lookups miss an LRU cache that is empty at first.

    Args:
        popularity: Of the rows.
        rows: Of the table.
        cached: Rows that the cache holds.
        lookups: How many; may be fractional.
        pooling: Rows of a bag, on average; matters where a bag holds none twice.

    """
    if cached <= 0:
        return lookups
    curve = row_curve(popularity, rows, pooling)
    until = curve.lookups_until(cached)
    touched = curve.touched(lookups)
    if until >= lookups:  # the cache is never full, so every new row misses once
        return touched
    # A cache of few rows: what it holds is no average, and told one by one.
    missed = (
        lru_miss_share(popularity, rows, cached)
        if cached < FEW_ROWS
        else curve.novelty(until)
    )
    return min(max(cached + (lookups - until) * missed, touched), lookups)


@attrs.frozen
class BatchFill:
    """Rows that a cache fetches in a batch, if it is filled batch by batch.

    Attributes:
        window: Batches whose rows it holds; below 1 a batch does not fit.
        touched: Different rows of a batch.
        fetched: Of those, how many are not in the cache.
        straight: Of those, how many find no place, and are read past it.

    """

    window: float
    touched: float
    fetched: float
    straight: float


def batch_fill(curve: RowCurve, cached: float, lookups: float) -> BatchFill:
    """Return the fill of a cache of *cached* rows in a batch of so many lookups.

    A cache that holds all rows fetches none, once it is warm.
    """
    touched = curve.touched(lookups)
    if lookups <= 0:
        return BatchFill(math.inf, 0.0, 0.0, 0.0)
    if cached <= 0:
        return BatchFill(0.0, touched, touched, touched)
    until = curve.lookups_until(cached)
    if math.isinf(until):
        return BatchFill(until, touched, 0.0, 0.0)
    # The rows of a window that is longer by this batch, less those of the window
    # itself: a batch fetches what the window before it has not touched.
    fetched = min(curve.touched(until + lookups) - curve.touched(until), touched)
    return BatchFill(until / lookups, touched, fetched, max(touched - cached, 0.0))


@attrs.frozen
class LookAhead:
    """Rows of a cache that knows the next batches, in one batch (BagPipe, SOSP 2023).

    Attributes:
        fetched: Rows that no batch of the window before has brought.
        resident: Rows that it holds: those of the batch that the window uses again.
        next_batch: Rows of the batch that the very next one uses, too: synchronised
            at once.
        once: Those that are hit once in the batch, and not by the next one: not
            shared, not synchronised.
        later: The others, synchronised after the batch.

    """

    fetched: float
    resident: float
    next_batch: float
    once: float
    later: float


def look_ahead(curve: RowCurve, lookups: float, window: float) -> LookAhead:
    """Return the rows of a cache that looks *window* batches of so many lookups ahead.

    With q the probability of a row to be in a batch: fetched are q (1 - q) ** W,
    resident 1 - (1 - q) ** W (1 + W q), wanted by the next batch q ** 2. Of n lookups
    that hit it with probability p each, one hits it and none of the next n with the
    probability n p (1 - p) ** (2 n - 1), which is n U'(2 n) for all rows.
    """
    batch = curve.touched(lookups)
    within = curve.touched(window * lookups)
    fetched = curve.touched((window + 1) * lookups) - within
    left = min(curve.touched(2 * lookups) - batch, batch)
    once = min(lookups * curve.slope(2 * lookups), left)
    resident = max(within - window * fetched, 0.0)
    return LookAhead(fetched, resident, batch - left, once, left - once)


def rows_for_hits(popularity: Popularity, rows: int, share: float) -> int:
    """Return how many rows a warm LRU cache has to hold for a share of hits.

    Args:
        popularity: Of the rows.
        rows: Of the table.
        share: Of lookups that hit, from 0 to 1.

    """
    low, high = 0, rows
    while low < high:
        middle = (low + high) // 2
        if 1 - lru_miss_share(popularity, rows, middle) >= share:
            high = middle
        else:
            low = middle + 1
    return low


def miss_curve(
    popularity: Popularity, rows: int, points: int
) -> list[tuple[int, float]]:
    """Return pairs of cached rows, evenly spaced in their logarithm, and miss share."""
    sizes = np.unique(np.rint(np.geomspace(1, rows, points)))
    return [(int(c), lru_miss_share(popularity, rows, float(c))) for c in sizes]
