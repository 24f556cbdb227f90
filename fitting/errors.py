"""How far off predictions are: the figures that perfc prints everywhere."""

from __future__ import annotations

from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


@attrs.frozen
class Errors:
    """Errors of some predictions, as fractions.

    Attributes:
        rows: How many.
        mape: Mean of |predicted / measured - 1|.
        gmae: exp(mean |ln(predicted / measured)|) - 1.
        p90: Ninetieth percentile of |predicted / measured - 1|.
        max: Largest of them.
        bias: Mean of predicted / measured - 1.
        log_mean: Mean of ln(predicted / measured).
        log_spread: Standard deviation of it.

    """

    rows: int
    mape: float
    gmae: float
    p90: float
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
    return Errors(
        rows=len(measured),
        mape=float(size.mean()),
        gmae=float(np.expm1(np.abs(logs).mean())),
        p90=float(np.quantile(size, 0.9)),
        max=float(size.max()),
        bias=float(relative.mean()),
        log_mean=float(logs.mean()),
        log_spread=float(logs.std()),
    )
