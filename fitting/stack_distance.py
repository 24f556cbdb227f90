"""Stack distances: how many other rows are looked up before a row is again.

A lookup hits an LRU cache of C rows if fewer than C others were looked up since the
last one of its row (R. L. Mattson et al., 1970): one pass tells of caches of any size.
With prev[i] the last lookup of the row of lookup i, its distance is

    number of j < i with prev[j] <= prev[i], less prev[i] + 1

which is counted for all i at once, by halving blocks, in O(N log N).
Long traces are sampled by a hash of the row (SHARDS; Waldspurger et al., FAST 2015).
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_NEVER = -1
_HASH = np.uint64(0x9E3779B97F4A7C15)
_SPACE = 2**24


def stack_distances(rows: Ints) -> Ints:
    """Return the distance of each lookup, -1 where its row is looked up first.

    Args:
        rows: Looked up one after another, shape `(lookups,)`.

    """
    count = len(rows)
    order = np.argsort(rows, kind="stable")
    again = rows[order[1:]] == rows[order[:-1]]
    before = np.full(count, _NEVER, dtype=np.int64)
    before[order[1:][again]] = order[:-1][again]
    earlier = _earlier_and_less(before)
    return np.where(before == _NEVER, _NEVER, earlier - before - 1)


def _earlier_and_less(keys: Ints) -> Ints:
    """Return how many earlier keys are less or equal, those of equal ones in order."""
    count = len(keys)
    found = np.zeros(count, dtype=np.int64)
    places = np.argsort(keys, kind="stable")
    rank = np.arange(count, dtype=np.int64)
    for level in reversed(range(max(count - 1, 0).bit_length())):
        half = 1 << level
        block = places >> (level + 1)
        late = (places & half) != 0
        start = block << (level + 1)
        lefts = np.cumsum(~late) - block * half  # of its block, up to here
        found[places[late]] += lefts[late]
        held = np.minimum(half, count - start)  # early ones of the block
        to = np.where(late, rank - lefts + held, start + lefts - 1)
        moved = np.empty_like(places)
        moved[to] = places
        places = moved
    return found


@attrs.frozen(eq=False)
class MissCurve:
    """Hits of LRU caches of any size, in one trace from an empty cache.

    Attributes:
        distances: Of the lookups that are sampled and not the first of their row, in
            rows of the trace, ascending; float64.
        lookups: Sampled ones that there should be, by the rate.
        rate: Share of rows that are sampled.

    """

    distances: NDArray[np.float64]
    lookups: float
    rate: float

    def hit_share(self, cached: float) -> float:
        """Return the share of lookups that hit a cache of so many rows."""
        if not self.lookups:
            return 0.0
        hits = int(np.searchsorted(self.distances, cached, side="left"))
        return min(hits / self.lookups, 1.0)

    def rows_for(self, share: float) -> int | None:
        """Return the smallest cache with that share of hits; None if there is none."""
        needed = int(np.ceil(share * self.lookups - 1e-9))
        if needed <= 0:
            return 0
        if needed > len(self.distances):
            return None
        return int(np.ceil(self.distances[needed - 1])) + 1


def miss_curve_of(rows: Ints, most: int) -> MissCurve:
    """Run a trace through caches of all sizes.

    Args:
        rows: Looked up one after another.
        most: Lookups above which rows are sampled.

    """
    sampled, rate = rows, 1.0
    if len(rows) > most:
        share = most / len(rows)
        hashed = (rows.astype(np.uint64) * _HASH) >> np.uint64(40)
        least = max(int(share * _SPACE), 1)
        sampled, rate = rows[hashed < least], least / _SPACE
    distances = stack_distances(sampled)
    again = np.sort(distances[distances >= 0]) / rate
    expected = len(rows) * rate
    if rate < 1:  # the popular rows are in the sample, or not: the difference is hits
        missing = round(expected - len(sampled))
        again = _adjusted(again, missing)
    return MissCurve(again, expected, rate)


def _adjusted(distances: NDArray[np.float64], missing: int) -> NDArray[np.float64]:
    """Add the lookups that a sample lacks to the shortest distance (SHARDS-adj)."""
    if missing >= 0:
        return np.concatenate([np.zeros(missing), distances])
    return distances[min(-missing, len(distances)) :]
