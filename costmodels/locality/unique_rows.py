"""How many different rows lookups touch, as their number grows.

N independent lookups of rows with probabilities p touch

    U(N) = sum of 1 - (1 - p) ** N

rows; of bags that hold no row twice a row is in one with its probability of inclusion,
and (1 - p) ** N becomes (1 - inclusion) ** bags. A histogram of hits in N lookups
needs no law: n of them leave out a row of c hits with probability (1 - n / N) ** c
(rarefaction; H. Sanders, 1968). Beyond N new rows turn up as Good and Turing say.

U is all that caches need of a popularity: see `row_cache.py`.
"""

from __future__ import annotations

import abc
import functools
import math

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats
from perfc.costmodels.locality.bins import RankBins
from perfc.costmodels.locality.inclusion_probabilities import inclusion_shares
from perfc.costmodels.locality.popularity import (
    Histogram,
    Popularity,
    Uniform,
    rank_bins,
)

_CERTAIN = 1 - 1e-16


@attrs.frozen(eq=False)
class RowCurve(abc.ABC):
    """Rows touched, against lookups.

    Attributes:
        rows: Of the table.

    """

    rows: float

    @abc.abstractmethod
    def touched(self, lookups: float) -> float:
        """Return how many different rows so many lookups touch, on average."""

    @abc.abstractmethod
    def novelty(self, lookups: float) -> float:
        """Return the probability that the next lookup is of a row not yet touched."""

    @abc.abstractmethod
    def slope(self, lookups: float) -> float:
        """Return how fast `touched` grows."""

    def lookups_until(self, touched: float) -> float:
        """Return after how many lookups so many rows are touched, or infinity."""
        if touched >= self.rows:
            return math.inf
        lookups = max(touched, 0.0)
        for _ in range(200):  # Newton's steps: from below, as the curve bends down
            missing = touched - self.touched(lookups)
            slope = self.slope(lookups)
            if missing <= 1e-9 * touched:
                return lookups
            if slope <= 0:
                return math.inf
            lookups += missing / slope
        return lookups


@attrs.frozen(eq=False)
class DrawnRows(RowCurve):
    """Curve of draws that are alike: lookups, or bags of rows that differ.

    Attributes:
        counts: Rows of each group.
        escape: Logarithm of the probability that a draw misses a row of the group.
        per_draw: Lookups of a draw.

    """

    counts: Floats
    escape: Floats
    per_draw: float

    def touched(self, lookups: float) -> float:
        """Add up what is not missed; at most all lookups."""
        draws = lookups / self.per_draw
        found = -float(self.counts @ np.expm1(draws * self.escape))
        return min(found, lookups)

    def novelty(self, lookups: float) -> float:
        """Add up what one lookup more does not miss."""
        missed = np.exp(lookups / self.per_draw * self.escape)
        return -float((self.counts * missed) @ np.expm1(self.escape / self.per_draw))

    def slope(self, lookups: float) -> float:
        """Add up what is missed, and found next."""
        missed = np.exp(lookups / self.per_draw * self.escape)
        return -float((self.counts * missed) @ self.escape) / self.per_draw


@attrs.frozen(eq=False)
class RarefiedRows(RowCurve):
    """Curve of a histogram of hits.

    Attributes:
        hits: Of a row of each group.
        counts: Rows of each group.
        lookups: That the histogram is of.
        once: Rows that were hit once.

    """

    hits: Floats
    counts: Floats
    lookups: float
    once: float

    def touched(self, lookups: float) -> float:
        """Rarefy; beyond the histogram, spread Good and Turing's share."""
        seen = float(self.counts.sum())
        if lookups >= self.lookups:
            unseen = max(self.rows - seen, 0.0)
            return seen - unseen * math.expm1(-self._beyond(lookups))
        left = np.log1p(-lookups / self.lookups)
        found = -float(self.counts @ np.expm1(self.hits * left))
        return min(found, lookups)

    def novelty(self, lookups: float) -> float:
        """Return the slope: hits of a row that has few are drawn one by one."""
        return min(self.slope(lookups), 1.0)

    def slope(self, lookups: float) -> float:
        """Return the chance of rows that were left out."""
        if lookups >= self.lookups:
            if self.rows <= float(self.counts.sum()):
                return 0.0
            return self.once / self.lookups * math.exp(-self._beyond(lookups))
        left = 1 - lookups / self.lookups
        hit = self.counts * self.hits / self.lookups
        return float(hit @ left ** (self.hits - 1))

    def _beyond(self, lookups: float) -> float:
        """Return how often each row not seen is hit behind the histogram's end."""
        unseen = self.rows - float(self.counts.sum())
        share = self.once / self.lookups
        more = lookups - self.lookups
        return more * share / unseen if unseen > 0 else 0.0


def row_curve(popularity: Popularity, rows: int, pooling: float = 1.0) -> RowCurve:
    """Return how many rows lookups in a table touch.

    Args:
        popularity: Of its rows.
        rows: Of the table; at least 1.
        pooling: Rows of a bag, on average; matters where a bag holds none twice.

    """
    rows = max(rows, 1)
    return _row_curve(popularity, rows, float(pooling) if popularity.distinct else 1.0)


@functools.lru_cache(maxsize=256)
def _row_curve(popularity: Popularity, rows: int, pooling: float) -> RowCurve:
    if isinstance(popularity, Histogram):
        own = popularity.within(rows)
        pairs: Floats = np.array(own.counts, dtype=np.float64)
        return RarefiedRows(rows, pairs[:, 0], pairs[:, 1], own.lookups, own.once)
    bins = rank_bins(popularity, rows)
    if not popularity.distinct or pooling <= 1:
        return _drawn(bins, bins.probability, 1.0)
    held = min(pooling, rows)
    return _drawn(bins, inclusion_shares(popularity, rows, held), held)


def _drawn(bins: RankBins, probability: Floats, per_draw: float) -> RowCurve:
    escape = np.log1p(-np.minimum(probability, _CERTAIN))
    return DrawnRows(bins.total_rows, bins.rows, escape, per_draw)


def unique_row_count(
    popularity: Popularity, rows: int, lookups: float, pooling: float = 1.0
) -> float:
    """Return how many different rows of a table are looked up, on average.

    Args:
        popularity: Of its rows.
        rows: Of the table; at least 1.
        lookups: Of all bags; may be fractional, 0 at least.
        pooling: Rows of a bag, on average; matters where a bag holds none twice.

    """
    if isinstance(popularity, Uniform) and lookups > 0:
        spread = max(rows, 1 + 1e-12)
        return min(-rows * math.expm1(lookups * math.log1p(-1 / spread)), lookups)
    return row_curve(popularity, rows, pooling).touched(lookups)
