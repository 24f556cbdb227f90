"""Intervals from rows that were neither fitted nor are reported."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import (
    SIMT_MODES,
    CostModel,
    TimedEstimate,
    as_timed,
    hidden_kernels,
    interval_rows,
    price_table,
)
from perfc.fitting.cross_fit import cross_fitted
from perfc.fitting.samples import CALIBRATION, Sample
from perfc.fitting.scores import Z90, coverage

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]

FEWEST = 50
"""Rows below which a model's own uncertainty stays."""

_LEAST, _MOST = 0.01, 5.0
_HALVINGS = 24

Sigmas: TypeAlias = dict[str, dict[str, object]]
"""By target, then by what they are of."""


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
    hidden: NDArray[np.bool_]

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

    def logs(self, chosen: NDArray[np.bool_]) -> Floats:
        """Return ln(predicted / measured) of some rows."""
        predicted_s = self.sample.timed_s(self.kernel_s)
        return np.log(predicted_s / self.sample.measured_s)[chosen]

    def stated(self, sigma: float) -> tuple[Floats, TimedEstimate]:
        """Return |ln(predicted / measured)| and what kernels that uncertain measure."""
        rows = self.sample
        sigmas = np.full(len(rows), sigma)
        timing = rows.key.timing
        timed = as_timed(self.kernel_s, sigmas, rows.table, rows.target, timing)
        return np.abs(np.log(timed.seconds / rows.measured_s)), timed

    def inside(self, sigma: float) -> NDArray[np.bool_]:
        """Whether each row is, if its kernel is as uncertain as that."""
        logs, timed = self.stated(sigma)
        return logs <= Z90 * timed.sigma


def _by_family(
    samples: Iterable[Sample], models: Sequence[CostModel]
) -> dict[tuple[str, str, str], list[PricedRows]]:
    """Return the rows for the intervals, by target, op and what intervals call them."""
    found: dict[tuple[str, str, str], list[PricedRows]] = {}
    for sample in samples:
        rows = sample.of(CALIBRATION)
        parts = [(rows, price_table(rows.table, rows.target, models).seconds)]
        parts += cross_fitted(sample)
        for part, kernel_s in parts:
            for name, at in named(part):
                key = (part.target.name, part.key.op, name)
                of_name = PricedRows.of(part.take(at), kernel_s[at])
                found.setdefault(key, []).append(of_name)
    return found


def named(rows: Sample) -> Iterator[tuple[str, Indices]]:
    """Yield the names of intervals that rows have, and which rows have each."""
    for name, chosen in interval_rows(rows.table, rows.target):
        if chosen.any():
            yield name, np.flatnonzero(chosen)


def call_sigmas(samples: Iterable[Sample], models: Sequence[CostModel]) -> Sigmas:
    """Return how uncertain eager calls are that hide their kernel, by target and op.

    The interval of nine rows in ten: the quantile of |ln(predicted / measured)| over
    that of a normal distribution.
    """
    found: Sigmas = {}
    for (target, op, _), parts in _by_family(samples, models).items():
        logs = np.concatenate([part.logs(part.hidden) for part in parts])
        if len(logs) >= FEWEST:
            sigma = float(np.quantile(np.abs(logs), _level(len(logs)))) / Z90
            found.setdefault(target, {})[op] = _short(sigma)
    return found


def kernel_sigmas(samples: Iterable[Sample], models: Sequence[CostModel]) -> Sigmas:
    """Return shared and independent sigmas by target and name.

    The least with which nine rows in ten lie in their interval, what the host adds to
    it included: `call_sigmas` come first. Shared is what kernels are off on average.
    """
    found: Sigmas = {}
    for (target, _, name), parts in _by_family(samples, models).items():
        logs = np.concatenate([part.logs(~part.hidden) for part in parts])
        if len(logs) < FEWEST:
            continue
        whole = _least_sigma([parts], _level(_different(parts)))
        shared = min(abs(float(logs.mean())), 0.95 * whole)
        own = math.sqrt(whole**2 - shared**2)
        of_target = found.setdefault(target, {})
        of_target[name] = [_short(shared), _short(own)]
    return found


def unseen_sigmas(
    left_out: Mapping[str, Mapping[str, PricedRows]],
) -> dict[str, list[float]]:
    """Return shared and independent sigmas of a GPU without rows.

    Args:
        left_out: Rows by op and dtype, then by GPU, priced by a fit to the others.

    """
    return {
        name: list(map(_short, _pooled(list(gpus.values()))))
        for name, gpus in left_out.items()
    }


def unseen_coverage(
    rows: PricedRows, others: Sequence[PricedRows]
) -> tuple[float, float]:
    """Return the share of rows inside the interval of GPUs left out, and its width.

    Args:
        rows: Of a GPU, priced by a fit to the others.
        others: The same of other GPUs.

    """
    _, timed = rows.stated(math.hypot(*_pooled(others)))
    return coverage(timed.seconds, timed.sigma, rows.sample.measured_s)


def _pooled(gpus: Sequence[PricedRows]) -> tuple[float, float]:
    """Return shared and independent sigmas, conformal over GPUs left out.

    Nine in ten of the rows that show their kernel are inside, every GPU counting alike.
    Shared is what GPUs are off on average.
    """
    showing = [gpu for gpu in gpus if not gpu.hidden.all()]
    logs = [gpu.logs(~gpu.hidden) for gpu in showing]
    level = _level(min(map(len, logs)))
    whole = _least_sigma([[gpu] for gpu in showing], level)
    shared = math.sqrt(float(np.mean([gpu.mean() ** 2 for gpu in logs])))
    shared = min(shared, 0.95 * whole)
    return shared, math.sqrt(whole**2 - shared**2)


def _different(parts: Sequence[PricedRows]) -> int:
    """Return how many rows there are that differ: of products on tensor cores (n, k).

    Those are split by them, as errors of one (n, k) are alike: with few of them nine in
    ten of the next need a higher quantile (Lee, Barber, Willett, arXiv 2306.06342).
    """
    found: set[tuple[float, float]] = set()
    rows = 0
    for part in parts:
        table, key = part.sample.table, part.sample.key
        if key.op == "gemm" and key.dtype not in SIMT_MODES:
            sizes = zip(
                table.param("n").tolist(), table.param("k").tolist(), strict=True
            )
            found.update(sizes)
        else:
            rows += int((~part.hidden).sum())
    return rows + len(found)


def _least_sigma(groups: Sequence[Sequence[PricedRows]], level: float) -> float:
    """Bisect for the sigma of kernels at which enough rows are inside.

    Of those that show their kernel; every group counts alike.
    """
    low, high = _LEAST, _MOST
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        shares = [
            np.concatenate([part.inside(middle)[~part.hidden] for part in group]).mean()
            for group in groups
        ]
        low, high = (low, middle) if np.mean(shares) >= level else (middle, high)
    return high


def _level(rows: int) -> float:
    """Return nine tenths, one row more counted, as conformal prediction asks."""
    return min(1.0, 0.9 * (rows + 1) / rows)


def _short(sigma: float) -> float:
    return float(f"{max(sigma, _LEAST):.3g}")
