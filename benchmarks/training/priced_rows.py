"""Measured rows with what a fit says of their kernels, and how far off that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from perfc.costmodels.gemm import SIMT_MODES
from perfc.costmodels.kernels import Flags, Floats, Indices
from perfc.costmodels.pricing import (
    as_timed,
    hidden_kernels,
    interval_rows,
    interval_sizes,
)
from perfc.fitting.scores import Z90
from training.samples import Sample

LEVEL = 0.9
"""Share of rows that shall lie in their interval."""

LEAST, MOST = 0.003, 8.0
"""What an uncertainty can be."""

_HALVINGS = 24

POWERS = (-1.0, -0.8, -0.6, -0.5, -0.4, -0.3, -0.2, -0.1, 0.0, 0.1)
"""How errors can change with the size of kernels."""


@attrs.frozen(eq=False)
class PricedRows:
    """Rows of one table with what their kernels take, by some fit.

    Attributes:
        sample: The rows.
        kernel_s: Shape (rows,).
        hidden: Whether the host's call hides the kernel, shape (rows,).

    """

    sample: Sample
    kernel_s: Floats
    hidden: Flags

    @classmethod
    def of(cls, sample: Sample, kernel_s: Floats) -> PricedRows:
        """Return the rows with what a fit says of their kernels."""
        hidden = np.zeros(len(sample), dtype=np.bool_)
        if sample.key.timing == "event":
            hidden = hidden_kernels(kernel_s, sample.table, sample.target)
        return cls(sample, kernel_s, hidden)

    def take(self, rows: Indices) -> PricedRows:
        """Return some of the rows."""
        kernel_s, hidden = self.kernel_s[rows], self.hidden[rows]
        return PricedRows(self.sample.take(rows), kernel_s, hidden)

    def named(self) -> Iterator[tuple[str, PricedRows]]:
        """Yield the names of the intervals that rows have, and the rows of each."""
        for name, at in named(self.sample):
            yield name, self.take(at)


def different(rows: Sample) -> Indices:
    """Return a number for each row, the same for those whose errors are alike.

    Of GEMMs on tensor cores those of one (n, k), by which they are split; with few
    of them nine in ten of the next need a higher quantile (Lee, Barber, Willett, arXiv
    2306.06342).
    """
    if rows.key.op != "gemm" or rows.key.dtype in SIMT_MODES:
        return np.arange(len(rows))
    sizes = np.stack([rows.table.param("n"), rows.table.param("k")], axis=1)
    return np.unique(sizes, axis=0, return_inverse=True)[1].reshape(-1)


def named(rows: Sample) -> Iterator[tuple[str, Indices]]:
    """Yield the names of intervals that rows have, and which rows have each."""
    for name, chosen in interval_rows(rows.table, rows.target):
        if chosen.any():
            yield name, np.flatnonzero(chosen)


@attrs.frozen(eq=False)
class Misses:
    """How far off predictions of rows are, and what they are uncertain by.

    Attributes:
        logs: ln(predicted / measured), shape (rows,); so are the others.
        host: Variance of a row that the host's call adds.
        share: Of a kernel's variance, what its row has.
        sizes: Of the kernels (`interval_sizes`).

    """

    logs: Floats
    host: Floats
    share: Floats
    sizes: Floats

    def __len__(self) -> int:
        return len(self.logs)

    @classmethod
    def of(cls, parts: Sequence[PricedRows], *, hidden: bool | None = None) -> Misses:
        """Return those of several rows.

        Args:
            parts: At least one.
            hidden: Only of kernels that the host hides, or does not; None: of all.

        """
        found = [_misses(part) for part in parts]
        whole = cls(*(np.concatenate(each) for each in zip(*found, strict=True)))
        if hidden is None:
            return whole
        at = np.concatenate([part.hidden for part in parts]) == hidden
        return cls(whole.logs[at], whole.host[at], whole.share[at], whole.sizes[at])

    def sigma(self, scale: float, power: float) -> Floats:
        """Return the uncertainty of rows if that of kernels is scale * size^p."""
        found: Floats = np.sqrt(
            self.host + self.share * (scale * self.sizes**power) ** 2
        )
        return found

    def inside(self, scale: float, power: float) -> Flags:
        """Whether each row is in its interval."""
        found: Flags = np.abs(self.logs) <= Z90 * self.sigma(scale, power)
        return found

    def least(self, power: float, level: float = LEVEL) -> float:
        """Return the least scale at which so many rows are inside."""
        low, high = LEAST, MOST
        for _ in range(_HALVINGS):
            middle = float(np.sqrt(low * high))
            enough = self.inside(middle, power).mean() >= level
            low, high = (low, middle) if enough else (middle, high)
        return high

    def score(self, power: float) -> float:
        """Return the mean interval score, least of honest narrow ones.

        The width, and twenty times what rows are beyond it (Gneiting and Raftery,
        JASA 2007).
        """
        half = Z90 * self.sigma(self.least(power), power)
        beyond = np.maximum(np.abs(self.logs) - half, 0.0)
        return float((2 * half + 2 / (1 - LEVEL) * beyond).mean())

    def bias(self, power: float) -> float:
        """Return the mean logarithm that kernels are off by, scaled to size 1."""
        return float((self.logs / self.sizes**power).mean())


def power_of(groups: Sequence[Misses]) -> float:
    """Return how errors change with sizes, each group counting alike."""
    scores = {p: sum(np.log(group.score(p)) for group in groups) for p in POWERS}
    return min(POWERS, key=scores.__getitem__)


def _misses(part: PricedRows) -> tuple[Floats, Floats, Floats, Floats]:
    rows, timing = part.sample, part.sample.key.timing
    around = (rows.table, rows.target, timing)
    none, whole = np.zeros(len(rows)), np.ones(len(rows))
    timed = as_timed(part.kernel_s, none, *around)
    host = timed.sigma**2
    share = as_timed(part.kernel_s, whole, *around).sigma ** 2 - host
    logs = np.log(timed.seconds / rows.measured_s)
    return logs, host, share, interval_sizes(part.kernel_s, rows.target)
