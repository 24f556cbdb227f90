"""Lookups drawn at random and caches run on them: what formulas are checked by."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.locality import Popularity
from perfc.costmodels.locality.popularity import rank_bins

Rows = NDArray[np.int64]


def each_row(popularity: Popularity, rows: int) -> NDArray[np.float64]:
    """Return the probability of each row; of a popularity whose groups are whole."""
    bins = rank_bins(popularity, rows)
    return np.repeat(bins.probability, bins.rows.astype(np.int64))


def drawn(popularity: Popularity, rows: int, count: int, seed: int) -> Rows:
    """Draw independent lookups."""
    ends: NDArray[np.float64] = np.cumsum(each_row(popularity, rows))
    shares = np.random.default_rng(seed).random(count) * ends[-1]
    places: Rows = np.asarray(ends.searchsorted(shares, side="right"), dtype=np.int64)
    places[places >= rows] = rows - 1
    return places


def distinct_bags(
    popularity: Popularity, rows: int, bags: int, pooling: int, seed: int
) -> Rows:
    """Draw bags of rows that differ, one after another, shape `(bags, pooling)`."""
    rate, rng = each_row(popularity, rows), np.random.default_rng(seed)
    found = np.empty((bags, pooling), dtype=np.int64)
    for bag in found:
        arrival = rng.exponential(size=rows) / rate
        bag[:] = np.argpartition(arrival, pooling - 1)[:pooling]
    return found


def misses(lookups: Rows, cached: int, *, warm: int = 0, replaced: str = "lru") -> int:
    """Run a cache, and count the misses after the first *warm* lookups."""
    held: OrderedDict[int, None] = OrderedDict()
    missed = 0
    for number, row in enumerate(lookups.tolist()):
        if row in held:
            if replaced == "lru":
                held.move_to_end(row)
            continue
        missed += number >= warm
        held[row] = None
        if len(held) > cached:
            held.popitem(last=False)
    return missed
