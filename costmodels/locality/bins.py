"""Rows of a table in groups of nearly the same probability: sums over a billion rows.

The first ranks stand alone; behind them groups widen in proportion to the rank. A
group's probability is its exact mean (Euler and Maclaurin), so that what a sum over
groups leaves out is of second order in a width of less than a percent.
"""

from __future__ import annotations

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats

_ALONE = 2000
"""Ranks that are groups of their own."""

_GROUPS = 2000
"""Groups of the ranks behind them."""

_FOLDS = 8
"""Times that a tail is folded into a table one by one; the rest is an integral."""


@attrs.frozen(eq=False)
class RankBins:
    """Groups of rows, the most popular first.

    Attributes:
        probability: That a lookup is of one certain row of the group; float64.
        rows: Of the group; float64, of the same shape `(groups,)`.

    """

    probability: Floats
    rows: Floats

    @classmethod
    def of(cls, weights: Floats, rows: Floats) -> RankBins:
        """Normalise the weights of single rows."""
        return cls(weights / float(weights @ rows), rows)

    def possible(self) -> RankBins:
        """Return these bins, no row of them more probable than certain."""
        return RankBins(np.minimum(self.probability, 1.0), self.rows)

    @property
    def total_rows(self) -> float:
        """Rows of all groups."""
        return float(self.rows.sum())

    def share_of_first(self, rows: float) -> float:
        """Return which share of lookups the *rows* most popular rows have."""
        if rows <= 0:
            return 0.0
        ends = np.cumsum(self.rows)
        shares = np.minimum(np.cumsum(self.rows * self.probability), 1.0)
        found: float = np.interp(rows, np.append(0.0, ends), np.append(0.0, shares))
        return float(found)


def power_bins(
    rows: int, s: float, q: float, *, summed: bool = True, folded: bool = False
) -> RankBins:
    """Group *rows* ranks i of probability ~ (i + q) ** -s.

    Args:
        rows: Ranks, one at least.
        s: The exponent.
        q: The shift.
        summed: Whether of whole ranks; else of a density between rank and rank + 1.
        folded: Whether ranks beyond the last are those of rows (i - 1) mod *rows*.

    """
    ends = _ends(rows)
    widths = np.diff(ends, prepend=0.0)
    scale = 1 + q
    first, last = ends - widths + 1, ends
    if not summed:
        mass = _integral(first + q, last + 1 + q, s, scale)
        return RankBins.of(mass / widths, widths)
    mass = _sum(first + q, last + q, s, scale)
    if folded:
        for fold in range(1, _FOLDS):
            mass += _sum(first + fold * rows, last + fold * rows, s, scale)
        # Add up (rank + k * rows) ** -s of k from `_FOLDS` on; s is above 1.
        start = ((first + last) / 2) + _FOLDS * rows
        area = start ** (1 - s) / ((s - 1) * rows)
        folded_tail = area + start**-s / 2 + s * rows * start ** (-s - 1) / 12
        mass += widths * folded_tail
    return RankBins.of(mass / widths, widths)


def _ends(rows: int) -> Floats:
    alone = np.arange(1.0, min(rows, _ALONE) + 1)
    if rows <= _ALONE:
        return alone
    wide = np.rint(np.geomspace(_ALONE, float(rows), _GROUPS + 1)[1:])
    return np.unique(np.concatenate([alone, wide]))


def _integral(low: Floats, high: Floats, s: float, scale: float) -> Floats:
    """Integrate (x / scale) ** -s."""
    ratio = np.log1p((high - low) / low)
    bent = (1 - s) * ratio
    # (exp(t) - 1) / t, which is 1 at nought: s = 1 needs no formula of its own.
    straight = np.abs(bent) < 1e-12  # noqa: PLR2004 - far below what a float resolves
    safe = np.where(straight, 1.0, bent)
    stretch = np.where(straight, 1.0, np.expm1(safe) / safe)
    found: Floats = low * (low / scale) ** -s * ratio * stretch
    return found


def _sum(first: Floats, last: Floats, s: float, scale: float) -> Floats:
    """Add up (x / scale) ** -s of x from *first* to *last*, in steps of one."""
    low, high = (first / scale) ** -s, (last / scale) ** -s
    bend = s * (low / first - high / last) / 12
    found: Floats = _integral(first, last, s, scale) + (low + high) / 2 + bend
    return np.where(first == last, low, found)
