"""Stretches of time: how long they last together, and what of one is idle."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Stretch: TypeAlias = tuple[float, float]
"""Begin and end, in seconds."""

Stretches: TypeAlias = NDArray[np.float64]
"""Begins and ends, shape (stretches, 2), in seconds."""


def total_s(stretches: Stretches) -> float:
    """Return how long any of some stretches lasts."""
    found = disjoint(stretches)
    return math.fsum((found[:, 1] - found[:, 0]).tolist())


def disjoint(stretches: Stretches) -> Stretches:
    """Return stretches of the same time that do not touch, in order."""
    start_s, end_s = stretches[np.lexsort((stretches[:, 1], stretches[:, 0]))].T
    reached_s = np.maximum.accumulate(end_s)
    begins = np.ones(len(start_s), dtype=np.bool_)
    begins[1:] = start_s[1:] > reached_s[:-1]
    ends = np.append(np.flatnonzero(begins)[1:] - 1, len(start_s) - 1)
    found: Stretches = np.empty((int(begins.sum()), 2))
    found[:, 0], found[:, 1] = start_s[begins], reached_s[ends[: len(found)]]
    return found


def idle(stretch: Stretch, busy: Stretches) -> list[Stretch]:
    """Return the parts of a stretch in which nothing of *busy*, disjoint, runs."""
    start_s, end_s = stretch
    first = int(np.searchsorted(busy[:, 1], start_s, "right"))
    found: list[Stretch] = []
    for from_s, to_s in busy[first:].tolist():
        if from_s >= end_s:
            break
        if from_s > start_s:
            found.append((start_s, from_s))
        start_s = max(start_s, to_s)
    if end_s > start_s:
        found.append((start_s, end_s))
    return found
