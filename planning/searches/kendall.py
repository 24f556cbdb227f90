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

    """
    if len(first) != len(second):
        msg = f"kendall_tau: {len(first)} numbers against {len(second)}"
        raise PerfcError(msg)
    one, other = _numbers(first), _numbers(second)
    agreed = in_one = in_other = 0
    for at in range(len(one)):
        signs = np.sign(one[at + 1 :] - one[at]), np.sign(other[at + 1 :] - other[at])
        agreed += int(np.sum(signs[0] * signs[1]))
        in_one += int(np.count_nonzero(signs[0]))
        in_other += int(np.count_nonzero(signs[1]))
    ordered = in_one * in_other
    return agreed / math.sqrt(ordered) if ordered else None


def _numbers(given: Sequence[float]) -> NDArray[np.int64]:
    array = np.asarray(given, dtype=np.float64)
    if np.isnan(array).any():
        msg = "kendall_tau: expected numbers to rank, found nan"
        raise PerfcError(msg)
    return np.unique(array, return_inverse=True)[1].astype(np.int64)
