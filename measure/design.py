"""Which sizes are measured: a space-filling design, the same every time.

Points come from an additive recurrence with the generalised golden ratio (Roberts,
"The unreasonable effectiveness of quasirandom sequences", 2018): any beginning of the
sequence fills the space evenly, so that a run may stop anywhere. Sizes are spread
evenly by their logarithm, and most are moved to the nearest that people use; every
fourth point is left where it fell.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import attrs

from perfc.ir import AttrValue

OFF_GRID = 4
"""Every so many points one is not moved to a usual size."""

USUAL = tuple(sorted({f << power for f in (2, 3) for power in range(40)} | {1}))
"""Powers of two, and half as much again."""

Point: TypeAlias = dict[str, AttrValue]
"""A value for every dimension."""


@attrs.frozen
class Size:
    """A whole number, spread evenly by its logarithm.

    Attributes:
        low: The smallest.
        high: The largest.
        usual: What people use; powers of two and half as much again if not given.

    """

    low: int
    high: int
    usual: tuple[int, ...] = USUAL

    def at(self, share: float, *, exact: bool) -> int:
        """Return the size at a share of the way, moved to a usual one unless exact."""
        value = self.low * ((self.high + 1) / self.low) ** share
        inside = [size for size in self.usual if self.low <= size <= self.high]
        if exact or not inside:
            return int(value)
        return min(inside, key=lambda size: abs(math.log(size / value)))


@attrs.frozen
class Choice:
    """One of a few values, each as often as the others.

    Attributes:
        values: What there is to choose from.

    """

    values: tuple[AttrValue, ...]

    def at(self, share: float, *, exact: bool) -> AttrValue:
        """Return the value at a share of the way."""
        return self.values[int(share * len(self.values))]


Space: TypeAlias = Mapping[str, Size | Choice]
"""Dimensions by name."""


def points(space: Space) -> Iterator[Point]:
    """Yield points without end; they repeat where the space is small."""
    steps = _steps(len(space))
    for index in itertools.count():
        exact = index % OFF_GRID == OFF_GRID - 1
        yield {
            name: dimension.at((0.5 + (index + 1) * step) % 1.0, exact=exact)
            for (name, dimension), step in zip(space.items(), steps, strict=True)
        }


def _steps(dimensions: int) -> tuple[float, ...]:
    """Return the powers of 1 / g, where g ** (d + 1) = g + 1."""
    ratio = 2.0
    for _ in range(64):  # a contraction: exact long before
        ratio = (1 + ratio) ** (1 / (dimensions + 1))
    return tuple(ratio ** -(axis + 1) for axis in range(dimensions))
