"""Design of the sizes that are measured: it fills the space, alike every time.

Points are Sobol's, scrambled with a fixed seed: any beginning of the sequence fills the
space evenly, so that a run may stop anywhere. Sizes are spread evenly by their
logarithm, and most are moved to the nearest that people use; a quarter of the points
are left where they fall.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import attrs
from torch.quasirandom import SobolEngine

from perfc.ir import AttrValue

OFF_GRID = 0.25
"""Share of the points that are not moved to usual sizes."""

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
        usual: What people use, rising; powers of two and half as much again if not
            given.

    """

    low: int
    high: int
    usual: tuple[int, ...] = USUAL

    def at(self, share: float, *, exact: bool) -> int:
        """Return the size at a share of the way, moved to a usual one unless exact."""
        value = self.low * ((self.high + 1) / self.low) ** share
        if exact or not self._inside:
            return int(value)
        above = bisect.bisect(self._inside, value)
        nearest = self._inside[max(above - 1, 0) : above + 1]
        return min(nearest, key=lambda size: abs(math.log(size / value)))

    @functools.cached_property
    def _inside(self) -> tuple[int, ...]:
        return tuple(size for size in self.usual if self.low <= size <= self.high)


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


SEED = 20260
"""What shapes are scrambled with unless told."""

_BLOCK = 256


def points(space: Space, seed: int = SEED) -> Iterator[Point]:
    """Yield points without end; they repeat where the space is small."""
    # One dimension more says whether the sizes stay where they fall.
    dimensions = len(space) + 1
    engine: Any = SobolEngine(dimensions, scramble=True, seed=seed)  # type: ignore[no-untyped-call]
    while True:
        for free, *shares in engine.draw(_BLOCK).tolist():
            exact = free < OFF_GRID
            yield {
                name: dimension.at(share, exact=exact)
                for (name, dimension), share in zip(space.items(), shares, strict=True)
            }
