"""Probability of rows to be among a few distinct ones, drawn one after the other.

The rows of a bag that holds none twice are such a draw, and so are those that an LRU
cache holds (W. F. King, 1971): looked at backwards, the last rows that differ.

Drawing without replacement is a race: row i arrives at an exponential time of rate p_i,
and the first L are drawn (Efraimidis and Spirakis, 2006). Where L is large the moment
of the L-th arrival hardly varies: 1 - exp(-t p_i), t such that L rows are expected
(Rosén, 1972; Che, 2002). Where L is small it does, and the popular rows fill the bag
themselves:

    P(i drawn) = integral of p_i exp(-p_i t) P(fewer than L of the others by t) dt

is summed over t; how many of the others have arrived is counted row by row for the
head, and by its first two moments for the tail.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np

from perfc.costmodels.kernels import Floats
from perfc.costmodels.locality.bins import RankBins
from perfc.costmodels.locality.popularity import Popularity, rank_bins

FEW_ROWS = 24
"""Up to so many rows the race is counted."""

_HEAD = 48
"""Rows that are counted one by one."""

_EARLY = 1e-2
"""First moment, in times of the most popular row's or of that expected."""

_LATE, _LATE_OF_ALL = 50.0, 1e4
"""Last moment, in times of that when so many rows are expected."""

_STEP = 0.12
"""Step from one moment to the next, in their logarithm."""

_NO_MOMENT = 1e300
"""Moment as good as never, in lookups."""

_NEVER = 1e-12
"""A row that has arrived for sure has still not, with this probability."""


def inclusion_shares(popularity: Popularity, rows: int, drawn: float) -> Floats:
    """Return the probability of a row of each group to be among those drawn.

    Args:
        popularity: Of the rows.
        rows: Of the table.
        drawn: How many distinct rows; between two whole numbers, a mixture.

    """
    bins = rank_bins(popularity, rows)
    if drawn >= bins.total_rows:
        return np.ones_like(bins.rows)
    return _mixture(popularity, rows, max(drawn, 0.0))


@functools.lru_cache(maxsize=256)
def _mixture(popularity: Popularity, rows: int, drawn: float) -> Floats:
    whole = math.floor(drawn)
    if whole >= FEW_ROWS:
        return _expected(rank_bins(popularity, rows), drawn)
    low, high = (_drawn(popularity, rows, count) for count in (whole, whole + 1))
    found: Floats = low + (drawn - whole) * (high - low)
    return found


@functools.lru_cache(maxsize=256)
def _drawn(popularity: Popularity, rows: int, count: int) -> Floats:
    bins = rank_bins(popularity, rows)
    if count >= bins.total_rows:
        return np.ones_like(bins.rows)
    if count <= 1 or len(bins.rows) == 1:
        return bins.probability * count
    if np.any(bins.rows[:_HEAD] != 1):
        return _expected(bins, count)
    return _raced(bins, count)


def _expected(bins: RankBins, drawn: float) -> Floats:
    """Stop the race when so many rows are expected."""
    if len(bins.rows) == 1:
        return np.minimum(drawn / bins.rows, 1.0)
    return -np.expm1(-_moment(bins, drawn) * bins.probability)


def _moment(bins: RankBins, drawn: float) -> float:
    """Return when so many rows are expected; by Newton's steps, all from below."""
    moment = drawn
    for _ in range(200):
        left = np.exp(-moment * bins.probability)
        missing = drawn - float(bins.rows @ (1 - left))
        rate = float((bins.rows * bins.probability) @ left)
        # Rows whose probability is less than a float holds never arrive.
        if missing <= 1e-10 * drawn or missing >= rate * _NO_MOMENT:
            break
        moment += missing / rate
    return moment


def _raced(bins: RankBins, count: int) -> Floats:
    """Add up, over the moments at which a row may arrive, who is there before it."""
    head, tail = bins.probability[:_HEAD], bins.probability[_HEAD:]
    typical = _moment(bins, count)
    early = _EARLY * min(typical, 1 / head[0])
    late = typical * (_LATE if len(tail) else _LATE_OF_ALL)
    steps = math.ceil(math.log(late / early) / _STEP)
    # The moments are evenly spaced in their logarithm, because popular and rare rows
    # arrive at times that are orders of magnitude apart.
    times = np.geomspace(early, late, steps + 1)
    spans = math.log(late / early) / steps * times
    spans[0] = spans[0] / 2 + early  # nobody has arrived before
    missed = np.exp(-np.outer(bins.probability, times))
    arrived = _tail_counts(bins, missed[_HEAD:], count)
    before = list(_left_out(1 - missed[:_HEAD], arrived))
    # A row of the tail is hardly ever one of those before it.
    before.append(_joined(before[-1], 1 - missed[len(head) - 1]))
    first = (
        missed[: len(head)] * [spans * each.sum(axis=0) for each in before[:-1]]
    ).sum(1)
    rest = missed[_HEAD:] @ (spans * before[-1].sum(axis=0))
    found = np.minimum(bins.probability * np.concatenate([first, rest]), 1.0)
    # The shares must add up to the rows drawn, which a sum over moments meets only
    # approximately.
    scaled: Floats = found * (count / float(found @ bins.rows))
    return np.minimum(scaled, 1.0)


def _left_out(shares: Floats, arrived: Floats) -> Iterator[Floats]:
    """Yield the counts with all rows of *shares* but one added, for each in turn."""
    if len(shares) == 1:
        yield arrived
        return
    # The rows of one half are joined once for all rows of the other, so that n rows
    # take n log n joins instead of n squared.
    half = len(shares) // 2
    for mine, others in (
        (slice(half), shares[half:]),
        (slice(half, None), shares[:half]),
    ):
        joined = functools.reduce(_joined, others, arrived)
        yield from _left_out(shares[mine], joined)


def _tail_counts(bins: RankBins, missed: Floats, count: int) -> Floats:
    """Return P(k rows of the tail have arrived), shape `(count, times)`."""
    found = np.zeros((count, missed.shape[1]))
    rows = bins.rows[_HEAD:]
    found[0] = np.exp(rows @ np.log(np.maximum(missed, _NEVER)))
    odds = 1 / np.maximum(missed, _NEVER) - 1  # of having arrived
    first, second = rows @ odds, rows @ odds**2
    for k in range(1, count):
        before = found[k - 2] if k > 1 else 0.0
        found[k] = np.maximum(first * found[k - 1] - second * before, 0.0) / k
    return found


def _joined(arrived: Floats, share: Floats) -> Floats:
    """Add a row that has arrived with probability *share* to the counts."""
    found = arrived * (1 - share)
    found[1:] += arrived[:-1] * share
    return found
