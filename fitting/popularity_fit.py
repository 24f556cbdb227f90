"""Fit a Zipf-Mandelbrot popularity to how often the rows of a trace were hit."""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import (
    Histogram,
    ReuseHistogram,
    ZipfMandelbrot,
    reuse_histogram,
    unique_row_count,
)

_GROUPS = 24
"""Numbers of hits above this are grouped, so many to a factor of ten."""

_MOST_ROWS = 1e15
_GRID_S = (0.2, 0.5, 0.8, 1.0, 1.2, 1.5)
_GRID_Q = (0.0, 10.0, 300.0, 5000.0)
_ROUNDS = 16
_HEAD_WEIGHT = 3.0
"""Of look-ups, against that of the numbers of rows, most of which are hit rarely."""


@attrs.frozen
class PopularityFit:
    """What was fitted.

    Attributes:
        popularity: The law.
        rows: Of the table: those that the law needs to touch as many as were touched.
        error: Root mean square of how far the cumulative shares of look-ups are apart,
            by how often their row is hit.

    """

    popularity: ZipfMandelbrot
    rows: int
    error: float


def histogram_of(indices: NDArray[np.int64]) -> Histogram:
    """Return how many rows were hit how often, large numbers in groups."""
    hits = np.unique(indices, return_counts=True)[1]
    values, rows = np.unique(hits, return_counts=True)
    group = np.where(
        values <= _GROUPS, values, np.floor(np.log10(values) * _GROUPS) + _GROUPS * 10
    )
    pairs: list[tuple[float, float]] = []
    for each in np.unique(group):
        mine = group == each
        count = float(rows[mine].sum())
        pairs.append((float(values[mine] @ rows[mine]) / count, count))
    return Histogram(tuple(pairs))


def fit_popularity(histogram: Histogram) -> PopularityFit:
    """Fit exponent and shift by how many rows were hit so and so often.

    Numbers of rows in the 17 bins of reuse are taken as Poisson's, and cumulative
    shares of look-ups shall agree, too: they are of the few rows at the head. The rows
    of the table follow from how many were touched.
    """
    seen = reuse_histogram(histogram, 2**62, histogram.lookups)
    best = min(
        (_tried(seen, histogram, s, q) for s in _GRID_S for q in _GRID_Q),
        key=lambda tried: tried[0],
    )
    wide_s, wide_q = 0.15, 4.0
    for _ in range(_ROUNDS):
        s, q = best[1].s, best[1].q
        near = [
            (max(s + step * wide_s, 0.0), max((q + 1) * wide_q**power - 1, 0.0))
            for step in (-1, 0, 1)
            for power in (-1, 0, 1)
            if step or power
        ]
        found = [_tried(seen, histogram, *each) for each in near]
        better = min(found, key=lambda tried: tried[0])
        if better[0] >= best[0]:
            wide_s, wide_q = wide_s * 0.6, wide_q**0.6
        best = min(best, better, key=lambda tried: tried[0])
    law, rows = best[1], best[2]
    made = reuse_histogram(law, rows, histogram.lookups)
    return PopularityFit(law, rows, math.sqrt(_apart(made, seen)))


def _apart(made: ReuseHistogram, seen: ReuseHistogram) -> float:
    """Return the mean square of how far cumulative shares of look-ups are apart."""
    away, total = 0.0, 0.0
    for a, b in zip(made.lookups, seen.lookups, strict=True):
        away += a - b
        total += away**2
    return total / len(seen.lookups) / sum(seen.lookups) ** 2


def _tried(
    seen: ReuseHistogram, histogram: Histogram, s: float, q: float
) -> tuple[float, ZipfMandelbrot, int]:
    """Return the deviance of a law, the law, and the rows that it needs."""
    law = ZipfMandelbrot(round(s, 4), round(q, 2))
    rows = _rows_for(law, histogram.lookups, histogram.touched)
    made = reuse_histogram(law, rows, histogram.lookups)
    deviance = _HEAD_WEIGHT * histogram.touched * _apart(made, seen)
    for expected, found in zip(made.rows, seen.rows, strict=True):
        mean = max(expected, 1e-9)
        deviance += mean - found + (found * math.log(found / mean) if found else 0.0)
    return deviance, law, rows


def _rows_for(law: ZipfMandelbrot, lookups: float, touched: float) -> int:
    """Return the fewest rows of which as many are touched; the most if none are."""
    low, high = math.log(touched), math.log(_MOST_ROWS)
    for _ in range(18):
        middle = (low + high) / 2
        if unique_row_count(law, round(math.exp(middle)), lookups) < touched:
            low = middle
        else:
            high = middle
    return max(round(math.exp(high)), round(touched))
