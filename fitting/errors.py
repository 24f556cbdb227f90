"""How far off predictions are: the figures that perfc prints everywhere."""

from __future__ import annotations

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats

LEAST_APE = 0.001
"""Least error in a geometric mean, which an error of zero would make zero."""


@attrs.frozen
class Errors:
    """Errors of some predictions, as fractions.

    Attributes:
        rows: How many.
        mape: Mean of |predicted / measured - 1|.
        gmae: exp(mean |ln(predicted / measured)|) - 1.
        geomean_ape: Geometric mean of |predicted / measured - 1|, each at least 0.1 %.
        p50: Median of |predicted / measured - 1|.
        p90: Ninetieth percentile of them.
        p95: Ninety-fifth percentile.
        max: Largest of them.
        bias: Mean of predicted / measured - 1.
        log_mean: Mean of ln(predicted / measured).
        log_spread: Standard deviation of it.

    """

    rows: int
    mape: float
    gmae: float
    geomean_ape: float
    p50: float
    p90: float
    p95: float
    max: float
    bias: float
    log_mean: float
    log_spread: float


def errors_of(predicted: Floats, measured: Floats) -> Errors | None:
    """Return the errors, None where there are no rows.

    Args:
        predicted: Above 0, shape (rows,), in any unit.
        measured: The same rows in the same unit.

    """
    if not len(measured):
        return None
    relative = predicted / measured - 1
    logs = np.log(predicted / measured)
    size = np.abs(relative)
    p50, p90, p95 = map(float, np.quantile(size, (0.5, 0.9, 0.95)))
    return Errors(
        rows=len(measured),
        mape=float(size.mean()),
        gmae=float(np.expm1(np.abs(logs).mean())),
        geomean_ape=float(np.exp(np.log(np.maximum(size, LEAST_APE)).mean())),
        p50=p50,
        p90=p90,
        p95=p95,
        max=float(size.max()),
        bias=float(relative.mean()),
        log_mean=float(logs.mean()),
        log_spread=float(logs.std()),
    )
