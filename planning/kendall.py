"""How far two orders of the same things agree."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perfc.ir import PerfcError


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Kendall's tau-b of two rankings, which counts ties in either.

    It is (agreeing - disagreeing pairs) / sqrt(pairs not tied in the first x pairs not
    tied in the second) (Kendall, "The treatment of ties in ranking problems",
    Biometrika 33, 1945). All pairs are compared: n things take n^2 steps.

    Args:
        first: A number for each thing.
        second: Another for each, in the same order.

    Returns:
        From -1, opposite orders, to 1, the same; None where one ranking ties all, and
        so has no order.

    Raises:
        PerfcError: they are not of the same length, or a number is none.

    """
    if len(first) != len(second):
        msg = f"kendall_tau: {len(first)} numbers against {len(second)}"
        raise PerfcError(msg)
    one, other = _orders(first), _orders(second)
    ordered = int(np.count_nonzero(one)) * int(np.count_nonzero(other))
    return int(np.sum(one * other)) / math.sqrt(ordered) if ordered else None


def _orders(numbers: Sequence[float]) -> NDArray[np.int64]:
    """Return for each pair 1 where the first is more, -1 where it is less, else 0."""
    array = np.asarray(numbers, dtype=np.float64)
    if np.isnan(array).any():
        msg = "kendall_tau: expected numbers to rank, found nan"
        raise PerfcError(msg)
    one, other = np.triu_indices(len(array), 1)
    more, less = array[one] > array[other], array[one] < array[other]
    return more.astype(np.int64) - less.astype(np.int64)
