"""Comparison of costs, some of which differ by rounding alone.

Processors and libraries round differently, so that costs of plans that are equally good
differ in their last digits. Every search compares costs here: those nearer to each
other than `TOLERANCE` are equal, and of equals the first is taken, in the order of the
names of tables, then of the ways to cut a table and of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfc.costmodels.kernels import Floats

TOLERANCE = 1e-12
"""Costs that differ by less than this share of themselves are equal."""

_EXACT_BITS = 50
"""Bits used of the 53 that a number has: sums of numbers on such a grid are exact."""


def grades(costs: Sequence[float] | Floats, scale: float | None = None) -> list[int]:
    """Number costs from the least, 0; equal costs have equal numbers.

    Args:
        costs: Costs; infinity is one.
        scale: What differences are a share of, if not of the costs themselves.

    """
    given = np.asarray(costs, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    ordered = given[order]
    size = np.abs(ordered) if scale is None else np.full(len(ordered), scale)
    ends = np.searchsorted(ordered, ordered + TOLERANCE * size, side="right")
    found, number, start = [0] * len(ordered), 0, 0
    while start < len(ordered):
        end = int(ends[start])
        for place in order[start:end].tolist():
            found[place] = number
        number, start = number + 1, end
    return found


def ranking(costs: Sequence[float] | Floats, scale: float | None = None) -> list[int]:
    """Return where costs stand, the least first, equals as they came."""
    numbers = grades(costs, scale)
    return sorted(range(len(numbers)), key=numbers.__getitem__)


def least(costs: Sequence[float] | Floats) -> int:
    """Return where the first of the least costs stands.

    Raises:
        ValueError: there are none.

    """
    given = np.asarray(costs, dtype=np.float64)
    best = given.min()
    return int(np.argmax(given <= best + TOLERANCE * abs(best)))


def most(amounts: Sequence[float] | Floats) -> int:
    """Return where the first of the greatest amounts stands."""
    return least(-np.asarray(amounts, dtype=np.float64))


def is_less(one: float, other: float) -> bool:
    """Whether a cost is less than another one, and not equal to it."""
    return other - one > TOLERANCE * abs(one)


def on_grid(amounts: Floats, total: Floats) -> Floats:
    """Round amounts so that they can be added up, and taken out again, exactly.

    Args:
        amounts: What is added up, by columns, [..., columns].
        total: No sum is more, [columns].

    """
    _, exponent = np.frexp(total)
    found: Floats = np.ldexp(
        np.rint(np.ldexp(amounts, _EXACT_BITS - exponent)), exponent - _EXACT_BITS
    )
    return found
