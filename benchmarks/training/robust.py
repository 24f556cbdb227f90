"""Least squares that outliers do not move: scipy's, with slopes over steps that count.

Rows whose residual exceeds a scale count by its size, not by its square (the loss
2 s^2 (sqrt(1 + (r/s)^2) - 1), `soft_l1`).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from perfc.costmodels.kernels import Floats

_STEP = 0.02
"""Parameters are logarithms. What they price jumps with the number of tiles and of
waves: a slope over the least step that numbers tell apart, scipy's, would miss that."""


def robust_least(
    residuals: Callable[[Floats], Floats],
    first: Floats,
    limits: Floats,
    scale: float,
) -> Floats:
    """Return the parameters near *first* with the least robust sum of squares.

    Args:
        residuals: Of parameters, shape (rows,).
        first: Where to begin, shape (parameters,).
        limits: Least and most of each, shape (parameters, 2).
        scale: Of residuals: beyond it a row counts less.

    Raises:
        ImportError: scipy is not installed, which only `make fit` needs.

    """
    optimize: Any = importlib.import_module("scipy.optimize")
    low, high = limits.T
    found = optimize.least_squares(
        residuals,
        np.clip(first, low, high),
        functools.partial(_slopes, residuals, high),
        bounds=(low, high),
        method="dogbox",
        loss="soft_l1",
        f_scale=scale,
    )
    return np.asarray(found.x, dtype=np.float64)


def _slopes(residuals: Callable[[Floats], Floats], most: Floats, at: Floats) -> Floats:
    """Return the slope of each residual along each parameter, shape (rows, parameters).

    Steps go down where the upper limit is near.
    """
    errors = residuals(at)
    steps = np.where(at + _STEP <= most, _STEP, -_STEP)
    moved = [residuals(each) for each in at + np.diag(steps)]
    slopes: Floats = (np.stack(moved, axis=1) - errors[:, np.newaxis]) / steps
    return slopes
