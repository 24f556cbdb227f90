"""How often rows are hit: histograms of reuse, as they are published.

A row of probability p is hit by N lookups as often as a Poisson variable of mean N p.
Bins are those of Lin et al. (TPDS 2024) and of facebookresearch/dlrm_datasets (MIT):
hits of 1, 2, 3 to 4, 5 to 8, ..., 16385 to 32768, and more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats
from perfc.costmodels.locality.popularity import (
    Histogram,
    Popularity,
    PopularityError,
    rank_bins,
)

REUSE_EDGES: tuple[float, ...] = (0.0, *(2.0**k for k in range(16)), math.inf)
"""Hits between which the 17 bins lie: above the one, up to the other."""

_COUNTED = 16.0
"""Poisson probabilities are added up so far; beyond, Wilson and Hilferty's."""


_TAIL = (1.330274429, -1.821255978, 1.781477937, -0.356563782, 0.319381530)


@attrs.frozen
class ReuseHistogram:
    """Histogram of the rows that lookups touch, by how often they are hit.

    Attributes:
        rows: Of each bin, 17.
        lookups: Of each bin, 17.

    """

    rows: tuple[float, ...]
    lookups: tuple[float, ...]

    @property
    def touched(self) -> float:
        """Different rows."""
        return math.fsum(self.rows)

    @property
    def factor(self) -> float:
        """Lookups of a row that is touched, on average."""
        touched = self.touched
        return math.fsum(self.lookups) / touched if touched > 0 else 0.0

    @property
    def row_shares(self) -> tuple[float, ...]:
        """Shares of the rows touched: what Lin et al. feed to their model."""
        return tuple(rows / max(self.touched, 1e-300) for rows in self.rows)


def reuse_histogram(
    popularity: Popularity, rows: int, lookups: float
) -> ReuseHistogram:
    """Return how often the rows of a table are hit by so many lookups."""
    if isinstance(popularity, Histogram) and popularity.lookups == lookups:
        return _counted(popularity.within(rows))
    bins = rank_bins(popularity, rows)
    mean = lookups * bins.probability
    before = [_up_to(mean, edge - 1) for edge in REUSE_EDGES]
    return ReuseHistogram(
        rows_by_hits(popularity, rows, lookups),
        tuple(
            float((bins.rows * mean) @ (high - low)) for low, high in pairwise(before)
        ),
    )


def rows_by_hits(
    popularity: Popularity, rows: int, lookups: float
) -> tuple[float, ...]:
    """Return how many rows are hit so often that they are in each of the 17 bins."""
    bins = rank_bins(popularity, rows)
    mean = lookups * bins.probability
    upto = [_up_to(mean, edge) for edge in REUSE_EDGES]
    return tuple(float(bins.rows @ (high - low)) for low, high in pairwise(upto))


def share_noise(popularity: Popularity, rows: int, lookups: float) -> float:
    """Return how far shares of lookups are from those that are expected, by chance.

    Of the cumulative shares of lookups in the 17 bins, drawn from a popularity: the
    root mean square of their standard deviations. With X the hits of a row, Poisson's,
    and A = 1 up to a bin's end, a share varies as the sum of X A over rows does, given
    the sum of X.
    """
    bins = rank_bins(popularity, rows)
    mean = lookups * bins.probability
    total = 0.0
    for edge in REUSE_EDGES[1:-1]:
        first = mean * _up_to(mean, edge - 1)  # of X A
        second = first + mean**2 * _up_to(mean, edge - 2)  # of X X A
        together = float(bins.rows @ (second - first * mean))  # with the lookups
        total += float(bins.rows @ (second - first**2)) - together**2 / lookups
    return math.sqrt(max(total, 0.0) / (len(REUSE_EDGES) - 1)) / lookups


def _counted(histogram: Histogram) -> ReuseHistogram:
    """Put the groups of a histogram into bins."""
    rows, lookups = [0.0] * 17, [0.0] * 17
    for hits, count in histogram.counts:
        place = next(i for i, edge in enumerate(REUSE_EDGES[1:]) if hits <= edge)
        rows[place] += count
        lookups[place] += hits * count
    return ReuseHistogram(tuple(rows), tuple(lookups))


def _up_to(mean: Floats, hits: float) -> Floats:
    """Return the probability of so many hits or fewer, of Poisson variables."""
    if hits < 0:
        return np.zeros_like(mean)
    if math.isinf(hits):
        return np.ones_like(mean)
    if hits <= _COUNTED:
        term: Floats = np.exp(-mean)
        found = term.copy()
        for k in range(1, int(hits) + 1):
            term = term * mean / k
            found += term
        return found
    shape = hits + 1
    cube = np.cbrt(mean / shape)
    away = 3 * math.sqrt(shape) * (cube - 1 + 1 / (9 * shape))
    # The share of a normal distribution above z, to 1e-7.
    # Abramowitz and Stegun, 26.2.17.
    size = np.abs(away)
    t = 1 / (1 + 0.2316419 * size)
    series = np.zeros_like(t)
    for factor in _TAIL:
        series = (series + factor) * t
    tail: Floats = series * np.exp(-(size**2) / 2) / math.sqrt(2 * math.pi)
    return np.where(away >= 0, tail, 1 - tail)


def published_histogram(
    lookups: float,
    touched: float,
    row_shares: Sequence[float],
    lookup_shares: Sequence[float],
) -> Histogram:
    """Return the histogram of hits that published bins stand for.

    Shares are rounded when they are published. Where rows of a bin round to nothing,
    its lookups say how many there are, spread evenly over the logarithm of hits.

    Args:
        lookups: In all.
        touched: Rows touched.
        row_shares: Of the rows touched, in 17 bins.
        lookup_shares: Of lookups, in the same.

    """
    bins = len(REUSE_EDGES) - 1
    if len(row_shares) != bins or len(lookup_shares) != bins:
        message = (
            f"a histogram of reuse has {len(row_shares)} shares of rows and "
            f"{len(lookup_shares)} of lookups; expected {bins} of each"
        )
        raise PopularityError(message)
    groups = zip(pairwise(REUSE_EDGES), row_shares, lookup_shares, strict=True)
    each_row = touched / (math.fsum(row_shares) or 1.0)
    each_lookup = lookups / (math.fsum(lookup_shares) or 1.0)
    pairs = [
        _group(low, high, row_share * each_row, share * each_lookup)
        for (low, high), row_share, share in groups
    ]
    return Histogram(tuple(pair for pair in pairs if pair[1] > 0))


def _group(low: float, high: float, rows: float, lookups: float) -> tuple[float, float]:
    """Return hits of a row of a bin, and rows."""
    least, most = low + 1 if low < 1 else low, high
    if math.isinf(most):
        most = 2 * low
    if rows > 0:
        hits = lookups / rows if lookups > 0 else least
        return min(max(hits, least), most), rows
    even = (most - least) / math.log(most / least) if most > least else least
    return even, lookups / even
