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
from perfc.fitting.scores import Z90

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


def unseen_sigmas(logs: Mapping[str, Sequence[Floats]]) -> dict[str, object]:
    """Return shared and independent sigmas of a GPU without rows.

    Conformal over GPUs left out: nine in ten of their rows are inside, every GPU
    counting alike. Shared is what GPUs are off on average.

    Args:
        logs: ln(predicted / measured) by op and dtype, one array a GPU left out.

    """
    found: dict[str, object] = {}
    for name, gpus in sorted(logs.items()):
        fewest = min(map(len, gpus))
        each = [np.quantile(np.abs(gpu), np.linspace(0, 1, fewest)) for gpu in gpus]
        pooled = np.concatenate(each)
        whole = float(np.quantile(pooled, _level(len(pooled)))) / Z90
        shared = math.sqrt(float(np.mean([gpu.mean() ** 2 for gpu in gpus])))
        shared = min(shared, 0.95 * whole)
        own = math.sqrt(whole**2 - shared**2)
        found[name] = [_short(shared), _short(own)]
    return found


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
