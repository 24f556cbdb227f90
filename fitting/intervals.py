"""Intervals from rows that were neither fitted nor are reported."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import CostModel, as_timed, hidden_kernels, price_table
from perfc.fitting.samples import CALIBRATION, Sample
from perfc.fitting.scores import Z90, coverage

Floats: TypeAlias = NDArray[np.float64]

FEWEST = 50
"""Rows below which a model's own uncertainty stays."""

_LEAST, _MOST = 0.01, 5.0
_HALVINGS = 24

Sigmas: TypeAlias = dict[str, dict[str, object]]
"""By target, then by what they are of."""


@attrs.frozen(eq=False)
class _Rows:
    """Rows of one table with what their kernels take, by the models at hand."""

    sample: Sample
    kernel_s: Floats
    hidden: NDArray[np.bool_]

    def logs(self, chosen: NDArray[np.bool_]) -> Floats:
        """Return ln(predicted / measured) of some rows."""
        predicted_s = self.sample.timed_s(self.kernel_s)
        return np.log(predicted_s / self.sample.measured_s)[chosen]

    def inside(self, sigma: float) -> NDArray[np.bool_]:
        """Whether each row is, if its kernel is as uncertain as that."""
        rows = self.sample
        sigmas = np.full(len(rows), sigma)
        timed = as_timed(
            self.kernel_s, sigmas, rows.table, rows.target, rows.key.timing
        )
        logs = np.log(timed.seconds / rows.measured_s)
        return np.abs(logs) <= Z90 * timed.sigma


def _by_family(
    samples: Iterable[Sample], models: Sequence[CostModel]
) -> dict[tuple[str, str, str], list[_Rows]]:
    """Return the rows for the intervals, by target, op and dtype."""
    found: dict[tuple[str, str, str], list[_Rows]] = {}
    for sample in samples:
        rows = sample.of(CALIBRATION)
        kernel_s = price_table(rows.table, rows.target, models).seconds
        hidden = np.zeros(len(rows), dtype=np.bool_)
        if rows.key.timing == "event":
            hidden = hidden_kernels(kernel_s, rows.table, rows.target)
        key = (rows.target.name, rows.key.op, rows.key.dtype)
        found.setdefault(key, []).append(_Rows(rows, kernel_s, hidden))
    return found


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
    """Return shared and independent sigmas by target, op and dtype.

    The least with which nine rows in ten lie in their interval, what the host adds to
    it included: `call_sigmas` come first. Shared is what kernels are off on average.
    """
    found: Sigmas = {}
    for (target, op, dtype), parts in _by_family(samples, models).items():
        logs = np.concatenate([part.logs(~part.hidden) for part in parts])
        if len(logs) < FEWEST:
            continue
        whole = _least_sigma(parts, _level(len(logs)))
        shared = min(abs(float(logs.mean())), 0.95 * whole)
        own = math.sqrt(whole**2 - shared**2)
        of_target = found.setdefault(target, {})
        of_target[f"{op} {dtype}"] = [_short(shared), _short(own)]
    return found


def unseen_sigmas(
    logs: Mapping[str, Mapping[str, Floats]],
) -> dict[str, list[float]]:
    """Return shared and independent sigmas of a GPU without rows.

    Args:
        logs: ln(predicted / measured) by op and dtype, then by GPU left out.

    """
    return {name: list(map(_short, _pooled(gpus))) for name, gpus in logs.items()}


def unseen_coverage(
    rows: Sample, kernel_s: Floats, others: Mapping[str, Floats]
) -> tuple[float, float]:
    """Return the share of rows inside the interval of GPUs left out, and its width.

    Args:
        rows: Of a GPU that is in no fit.
        kernel_s: What their kernels take by it, shape (rows,).
        others: ln(predicted / measured) of other GPUs, each left out of its fit.

    """
    sigma = np.full(len(rows), math.hypot(*_pooled(others)))
    timed = as_timed(kernel_s, sigma, rows.table, rows.target, rows.key.timing)
    return coverage(timed.seconds, timed.sigma, rows.measured_s)


def _pooled(gpus: Mapping[str, Floats]) -> tuple[float, float]:
    """Return shared and independent sigmas, conformal over GPUs left out.

    Nine in ten of their rows are inside, every GPU counting alike. Shared is what GPUs
    are off on average.
    """
    fewest = min(map(len, gpus.values()))
    each = [
        np.quantile(np.abs(gpu), np.linspace(0, 1, fewest)) for gpu in gpus.values()
    ]
    pooled = np.concatenate(each)
    whole = float(np.quantile(pooled, _level(len(pooled)))) / Z90
    shared = math.sqrt(float(np.mean([gpu.mean() ** 2 for gpu in gpus.values()])))
    shared = min(shared, 0.95 * whole)
    return shared, math.sqrt(whole**2 - shared**2)


def _least_sigma(parts: Sequence[_Rows], level: float) -> float:
    """Bisect for the sigma of kernels at which enough rows are inside."""
    low, high = _LEAST, _MOST
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        inside = np.concatenate([part.inside(middle)[~part.hidden] for part in parts])
        low, high = (low, middle) if inside.mean() >= level else (middle, high)
    return high


def _level(rows: int) -> float:
    """Return nine tenths, one row more counted, as conformal prediction asks."""
    return min(1.0, math.ceil(0.9 * (rows + 1)) / rows)


def _short(sigma: float) -> float:
    return float(f"{max(sigma, _LEAST):.3g}")
