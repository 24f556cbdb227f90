"""Intervals of GPUs with rows, from those that are not reported.

Nor fitted by a network that corrects what their op takes: GEMMs are predicted by
networks that lack them (`cross_fit`). Rows of other ops are as far off, fitted or not,
since a few parameters are fitted to thousands of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from perfc.costmodels.kernels import CostModel
from perfc.fitting.scores import Z90
from training.priced_rows import LEVEL, Misses, PricedRows, different, power_of
from training.samples import CALIBRATION, FITTED, Sample
from training.streams import KINDS
from training.unseen import MEMORY_OPS

FEWEST = 50
"""Rows below which a model's own uncertainty stays."""

WITHOUT_NETWORK = frozenset({*KINDS, *MEMORY_OPS, "conv2d"})
"""Ops of which fitted rows count as those that were not.

They are as far off: softmax 1.03, layer norm 1.02, elementwise 0.99 and convolutions
0.98 times (mean |ln(predicted / measured)|, GPUs alike).
"""

_APART = (CALIBRATION,)
_ALL_BUT_REPORTED = (FITTED, CALIBRATION)

_LEAST = 0.003
"""Least uncertainty that is stated."""

_MOST_SHARED = 0.95
"""Largest part of the whole uncertainty that kernels share."""

Sigmas: TypeAlias = dict[str, dict[str, object]]
"""Uncertainties by target, then by what they are of."""


def _priced(
    samples: Iterable[Sample], models: Sequence[CostModel]
) -> Iterator[tuple[str, PricedRows]]:
    """Yield the rows for the intervals, with what intervals call them."""
    for sample in samples:
        unseen = sample.key.op in WITHOUT_NETWORK or sample.apart_s is not None
        chosen = _ALL_BUT_REPORTED if unseen else _APART
        rows = sample.take(np.flatnonzero(np.isin(sample.part, chosen)))
        yield from PricedRows.of(rows, rows.kernel_s(models)).named()


def call_sigmas(samples: Iterable[Sample], models: Sequence[CostModel]) -> Sigmas:
    """Return how uncertain eager calls are that hide their kernel, by target and op.

    The interval of nine rows in ten: the quantile of |ln(predicted / measured)| over
    that of a normal distribution.
    """
    calls: dict[tuple[str, str], list[PricedRows]] = {}
    events = [sample for sample in samples if sample.key.timing == "event"]
    for _, rows in _priced(events, models):
        key = rows.sample.key
        calls.setdefault((key.target, key.op), []).append(rows)
    found: Sigmas = {}
    for (target, op), parts in calls.items():
        logs = Misses.of(parts, hidden=True).logs
        if len(logs) >= FEWEST:
            sigma = float(np.quantile(np.abs(logs), _level(len(logs)))) / Z90
            found.setdefault(target, {})[op] = short(sigma)
    return found


def kernel_sigmas(samples: Iterable[Sample], models: Sequence[CostModel]) -> Sigmas:
    """Return the uncertainties of kernels by target and name, each as of `stated`.

    The least with which nine rows in ten lie in their interval, what the host adds to
    it included: `call_sigmas` come first. Shared is what kernels are off on average.
    How that changes with sizes all GPUs say together.
    """
    kernels: dict[str, dict[str, list[PricedRows]]] = {}
    for name, rows in _priced(samples, models):
        of_name = kernels.setdefault(name, {})
        of_name.setdefault(rows.sample.key.target, []).append(rows)
    found: Sigmas = {}
    for name, gpus in kernels.items():
        misses = {gpu: Misses.of(rows, hidden=False) for gpu, rows in gpus.items()}
        enough = {gpu: each for gpu, each in misses.items() if len(each) >= FEWEST}
        power = power_of(list(enough.values()))
        for gpu, each in enough.items():
            whole = each.least(power, _level(_different(gpus[gpu])))
            known = stated(whole, each.bias(power), power)
            found.setdefault(gpu, {})[name] = known
    return found


def stated(whole: float, bias: float, power: float) -> list[float]:
    """Return shared and own uncertainty, and the power of sizes that they grow by."""
    shared = min(abs(bias), _MOST_SHARED * whole)
    return [short(shared), short(math.sqrt(whole**2 - shared**2)), power]


def _different(parts: Sequence[PricedRows]) -> int:
    """Return how many rows there are that show their kernel and differ."""
    return sum(len(np.unique(different(p.sample)[~p.hidden])) for p in parts)


def _level(rows: int) -> float:
    """Return nine tenths, one row more counted, as conformal prediction asks."""
    return min(1.0, LEVEL * (rows + 1) / rows)


def short(sigma: float) -> float:
    """Return an uncertainty as it is written: three digits, and never nothing."""
    return float(f"{max(sigma, _LEAST):.3g}")
