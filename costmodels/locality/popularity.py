"""How lookups spread over the rows of a table: popularity, in one line of text.

    uniform                     every row alike
    zipf(S)                     p of the i-th row ~ i ** -S
    zipf-mandelbrot(S,Q)        p ~ (i + Q) ** -S
    power-law(A)                density x ** -A from 1 to rows + 1, cut off at whole
                                rows, as NVIDIA's generators draw; `zipf` is that of
                                1.05
    fbgemm(A)                   FBGEMM's `--alpha`: uniform up to 1; above, Zipf without
                                an end, folded into the table; no row twice in a bag
    hist(HITS:ROWS,...)         so many rows were hit so often
    distinct(P)                 as P, but no row twice in a bag

`parse_popularity` reads such text and `str` writes it, each the other's inverse. It is
what the attribute `popularity` of tables and lookups holds.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Iterable
from typing import ClassVar

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats
from perfc.costmodels.locality.bins import RankBins, power_bins
from perfc.ir import PerfcError


class PopularityError(PerfcError):
    """A text is no popularity, or its numbers cannot be."""


def _at_least(least: float, value: float, what: str) -> None:
    if not least <= value < math.inf:
        message = f"{what} is {value:g}; expected a number of at least {least:g}"
        raise PopularityError(message)


def _number(value: float) -> str:
    """Write a number so that it is read back as it was."""
    return str(int(value)) if value == int(value) else repr(float(value))


@attrs.frozen
class Popularity(abc.ABC):
    """How lookups spread over rows, whatever the table's size."""

    distinct: ClassVar[bool] = False
    """Whether a bag holds no row twice."""

    @abc.abstractmethod
    def bins(self, rows: int) -> RankBins:
        """Return the rows of a table in groups of (nearly) the same probability."""

    def part(self, parts: int) -> Popularity:
        """Return that of one of so many parts, to which popular rows fall alike."""
        del parts
        return self


@attrs.frozen
class Uniform(Popularity):
    """Every row alike."""

    def __str__(self) -> str:
        return "uniform"

    def bins(self, rows: int) -> RankBins:
        """Return one group."""
        return RankBins.of(np.ones(1), np.array([float(rows)]))


@attrs.frozen
class ZipfMandelbrot(Popularity):
    """The i-th row in proportion to (i + q) ** -s; Zipf's law where q is 0.

    Attributes:
        s: The exponent.
        q: How many ranks the head is flat.

    """

    s: float = attrs.field(converter=float)
    q: float = attrs.field(default=0.0, converter=float)

    def __attrs_post_init__(self) -> None:
        _at_least(0.0, self.s, "the exponent of a popularity")
        _at_least(0.0, self.q, "the shift of a popularity")

    def __str__(self) -> str:
        if not self.q:
            return f"zipf({_number(self.s)})"
        return f"zipf-mandelbrot({_number(self.s)},{_number(self.q)})"

    def bins(self, rows: int) -> RankBins:
        """Return the first ranks one by one, then groups that widen."""
        return power_bins(rows, self.s, self.q)

    def part(self, parts: int) -> Popularity:
        """Return this popularity with a shorter flat head: one rank of so many."""
        return ZipfMandelbrot(self.s, self.q / parts)


@attrs.frozen
class PowerLaw(Popularity):
    """A power law of a continuous rank between 1 and rows + 1, cut off to whole rows.

    Attributes:
        exponent: Of the density.

    """

    exponent: float = attrs.field(converter=float)

    def __attrs_post_init__(self) -> None:
        _at_least(0.0, self.exponent, "the exponent of a popularity")

    def __str__(self) -> str:
        return f"power-law({_number(self.exponent)})"

    def bins(self, rows: int) -> RankBins:
        """Return the first ranks one by one, then groups that widen."""
        return power_bins(rows, self.exponent, 0.0, summed=False)


@attrs.frozen
class FbgemmAlpha(Popularity):
    """What FBGEMM's benchmarks draw for `--alpha`.

    Up to 1 all rows are alike. Above, ranks follow Zipf's law without an end, and
    rank x names row (x - 1) mod rows, so that the tail is folded into the table. Three
    times as many are drawn as a bag holds, and no row is kept twice
    (`fbgemm_gpu/bench/bench_utils.py`, BSD-3).
    """

    distinct: ClassVar[bool] = True
    alpha: float = attrs.field(converter=float)

    def __attrs_post_init__(self) -> None:
        _at_least(0.0, self.alpha, "the alpha of a popularity")

    def __str__(self) -> str:
        return f"fbgemm({_number(self.alpha)})"

    def bins(self, rows: int) -> RankBins:
        """Return the first ranks one by one, then groups that widen."""
        if self.alpha <= 1:
            return Uniform().bins(rows)
        return power_bins(rows, self.alpha, 0.0, folded=True)


def _sorted(pairs: Iterable[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    return tuple(sorted((float(hits), float(rows)) for hits, rows in pairs))


@attrs.frozen
class Histogram(Popularity):
    """How many rows were hit how often, in so many lookups as they add up to.

    A table of fewer rows than were hit has its share of them: a histogram may be of
    many tables. Rows that were never hit share what Good and Turing leave them: the
    share of lookups whose row was hit once.

    Attributes:
        counts: Pairs of hits (the mean of a group) and rows, the fewest hits first.

    """

    counts: tuple[tuple[float, float], ...] = attrs.field(converter=_sorted)

    def __attrs_post_init__(self) -> None:
        if not self.counts:
            message = "a histogram of hits is empty; expected HITS:ROWS,..."
            raise PopularityError(message)
        for hits, rows in self.counts:
            _at_least(1.0, hits, "hits of a row that was hit")
            if not 0 < rows < math.inf:
                message = f"{rows:g} rows in a histogram of hits; expected more than 0"
                raise PopularityError(message)

    def __str__(self) -> str:
        listed = (f"{_number(hits)}:{_number(rows)}" for hits, rows in self.counts)
        return f"hist({','.join(listed)})"

    @property
    def lookups(self) -> float:
        """Lookups of all rows."""
        return math.fsum(hits * rows for hits, rows in self.counts)

    @property
    def touched(self) -> float:
        """Rows that were hit at all."""
        return math.fsum(rows for _, rows in self.counts)

    @property
    def once(self) -> float:
        """Rows that were hit once; of a group of few hits its share."""
        return math.fsum(rows * max(2 - hits, 0.0) for hits, rows in self.counts)

    def within(self, rows: int) -> Histogram:
        """Return the share that a table of so many rows has of it."""
        share = rows / self.touched
        if share >= 1:
            return self
        return Histogram(tuple((hits, count * share) for hits, count in self.counts))

    def bins(self, rows: int) -> RankBins:
        """Return a group for each number of hits, and one for rows never hit."""
        own = self.within(rows)
        pairs: Floats = np.array(own.counts[::-1], dtype=np.float64)
        hits, counts = pairs[:, 0], pairs[:, 1]
        unseen = max(rows - own.touched, 0.0)
        if not unseen:
            return RankBins.of(hits, counts).possible()
        # No row that was never hit is more popular than one that was hit once.
        left = min(own.once / own.lookups, unseen / (own.lookups + unseen))
        seen = hits * (1 - left) / own.lookups
        every: Floats = np.append(seen, left / unseen)
        return RankBins.of(every, np.append(counts, unseen)).possible()


@attrs.frozen
class Distinct(Popularity):
    """Popularity as another, but no bag holds a row twice.

    Rows of a bag are drawn one after the other, each among those that are left.
    """

    distinct: ClassVar[bool] = True
    of: Popularity

    def __str__(self) -> str:
        return f"distinct({self.of})"

    def bins(self, rows: int) -> RankBins:
        """Return those of the other."""
        return self.of.bins(rows)

    def part(self, parts: int) -> Popularity:
        """Return that of a part of the other."""
        return Distinct(self.of.part(parts))


@functools.lru_cache(maxsize=256)
def rank_bins(popularity: Popularity, rows: int) -> RankBins:
    """Return the groups of a table's rows, worked out once."""
    return popularity.bins(max(rows, 1))
