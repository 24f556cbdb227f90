"""Fit a popularity to how often the rows of a trace were hit.

Of the uniform one, Zipf's and Zipf-Mandelbrot's, each of which has a number more than
the one before, the simplest is taken that explains the hits: a number costs half the
logarithm of the lookups (G. Schwarz, Annals of Statistics, 1978).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import Histogram, locality, unique_row_count

_ALONE = 24
"""Numbers of hits above this are grouped."""

_GROUPS = 8
"""Groups of a factor of two; they end where the bins of reuse do."""

_MOST_ROWS = 1e15
_GRID_S = (0.2, 0.5, 0.8, 1.0, 1.2, 1.5)
_GRID_Q = (0.0, 10.0, 300.0, 5000.0)
_ROUNDS = 16
_HEAD_WEIGHT = 3.0
"""Weight of lookups against the numbers of rows, most of which are hit rarely."""


@attrs.frozen
class PopularityFit:
    """What was fitted.

    Attributes:
        s: The exponent; 0 of the uniform law.
        q: The shift; 0 of the uniform law and of Zipf's.
        rows: Of the table: those that the law needs to touch as many as were touched.
        error: Root mean square of how far the cumulative shares of lookups are apart,
            by how often their row is hit.
        noise: How far they are of lookups that are drawn from the law.

    """

    s: float
    q: float
    rows: int
    error: float
    noise: float

    @property
    def popularity(self) -> locality.Popularity:
        """The law."""
        return _law(self.s, self.q)


@attrs.frozen
class _Trial:
    """A law that was tried, the rows that it needs, and how far off it is."""

    s: float
    q: float
    rows: int
    deviance: float


def _law(s: float, q: float) -> locality.Popularity:
    return locality.ZipfMandelbrot(s, q) if s else locality.Uniform()


def histogram_of(indices: NDArray[np.int64]) -> Histogram:
    """Return how many rows were hit how often, large numbers in groups."""
    hits = np.unique(indices, return_counts=True)[1]
    values, rows = np.unique(hits, return_counts=True)
    group = np.where(
        values <= _ALONE, values, np.ceil(np.log2(values) * _GROUPS) + _ALONE
    )
    pairs: list[tuple[float, float]] = []
    for each in np.unique(group):
        mine = group == each
        count = float(rows[mine].sum())
        pairs.append((float(values[mine] @ rows[mine]) / count, count))
    return Histogram(tuple(pairs))


def fit_popularity(histogram: Histogram) -> PopularityFit:
    """Fit a law by how many rows were hit so and so often.

    Numbers of rows in the 17 bins of reuse are taken as Poisson's, and cumulative
    shares of lookups shall agree, too: they are of the few rows at the head. The rows
    of the table follow from how many were touched.
    """
    seen = locality.reuse_histogram(histogram, 2**62, histogram.lookups)
    number = math.log(histogram.lookups) / 2
    tried = [
        _tried(seen, histogram, 0.0, 0.0),
        _searched(seen, histogram, (0.0,)),
        _searched(seen, histogram, _GRID_Q),
    ]
    costs = [trial.deviance + count * number for count, trial in enumerate(tried)]
    best = tried[costs.index(min(costs))]
    law, rows, lookups = _law(best.s, best.q), best.rows, histogram.lookups
    error = math.sqrt(_apart(locality.reuse_histogram(law, rows, lookups), seen))
    noise = locality.share_noise(law, rows, lookups)
    return PopularityFit(best.s, best.q, rows, error, noise)


def _searched(
    seen: locality.ReuseHistogram, histogram: Histogram, shifts: Sequence[float]
) -> _Trial:
    """Search for the exponent, and for the shift if more than one is to begin with."""
    best = min(
        (_tried(seen, histogram, s, q) for s in _GRID_S for q in shifts),
        key=_deviance,
    )
    powers = (-1, 0, 1) if len(shifts) > 1 else (0,)
    wide_s, wide_q = 0.15, 4.0
    for _ in range(_ROUNDS):
        near = [
            (best.s + step * wide_s, (best.q + 1) * wide_q**power - 1)
            for step in (-1, 0, 1)
            for power in powers
            if step or power
        ]
        found = [_tried(seen, histogram, max(s, 0.0), max(q, 0.0)) for s, q in near]
        better = min(found, key=_deviance)
        if better.deviance >= best.deviance:
            wide_s, wide_q = wide_s * 0.6, wide_q**0.6
        best = min(best, better, key=_deviance)
    return best


def _deviance(trial: _Trial) -> float:
    return trial.deviance


def _apart(made: locality.ReuseHistogram, seen: locality.ReuseHistogram) -> float:
    """Return the mean square of how far cumulative shares of lookups are apart."""
    away, total = 0.0, 0.0
    for a, b in zip(made.lookups, seen.lookups, strict=True):
        away += a - b
        total += away**2
    return total / len(seen.lookups) / sum(seen.lookups) ** 2


def _tried(
    seen: locality.ReuseHistogram, histogram: Histogram, s: float, q: float
) -> _Trial:
    """Return how far a law is from what was seen, with the rows that it needs."""
    s, q = round(s, 4), round(q, 2)
    law = _law(s, q)
    rows = _rows_for(law, histogram.lookups, histogram.touched)
    made = locality.reuse_histogram(law, rows, histogram.lookups)
    deviance = _HEAD_WEIGHT * histogram.touched * _apart(made, seen)
    for expected, found in zip(made.rows, seen.rows, strict=True):
        mean = max(expected, 1e-9)
        deviance += mean - found + (found * math.log(found / mean) if found else 0.0)
    return _Trial(s, q, rows, deviance)


def _rows_for(law: locality.Popularity, lookups: float, touched: float) -> int:
    """Return the fewest rows of which as many are touched; the most if none are."""
    if round(unique_row_count(law, round(touched), lookups)) >= touched:
        return round(touched)
    low, high = math.log(touched), math.log(_MOST_ROWS)
    for _ in range(18):
        middle = (low + high) / 2
        if unique_row_count(law, round(math.exp(middle)), lookups) < touched:
            low = middle
        else:
            high = middle
    return max(round(math.exp(high)), round(touched))
