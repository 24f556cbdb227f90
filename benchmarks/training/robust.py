"""Least squares that outliers do not move: Levenberg and Marquardt's steps in bounds.

Rows whose residual exceeds a scale count by its size, not by its square (the loss
2 s^2 (sqrt(1 + (r/s)^2) - 1)). Slopes are differences: parameters are logarithms, of
which a step of a hundredth is as good as any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

_ROUNDS = 30
_STEP = 0.02
_ENOUGH = 1e-5
"""Relative gain below which the search ends."""

_FIRST_DAMPING, _LESS, _MORE, _MOST_DAMPING = 1e-2, 0.3, 4.0, 1e8


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

    """
    at = np.clip(first, limits[:, 0], limits[:, 1])
    errors = residuals(at)
    damping = _FIRST_DAMPING
    for _ in range(_ROUNDS):
        loss = _loss(errors, scale)
        slopes = _slopes(residuals, at, errors, limits)
        weights = 1 / np.sqrt(1 + np.square(errors / scale))
        normal = slopes.T @ (slopes * weights[:, np.newaxis])
        downhill = -(slopes.T @ (errors * weights))
        moved, tried, gained = at, errors, 0.0
        while not gained and damping < _MOST_DAMPING:
            ridge = np.diag(damping * (np.diag(normal) + 1e-9))
            step = np.linalg.solve(normal + ridge, downhill)
            moved = np.clip(at + step, limits[:, 0], limits[:, 1])
            tried = residuals(moved)
            gained = max(0.0, 1 - _loss(tried, scale) / loss)
            damping *= _LESS if gained else _MORE
        if not gained:
            break
        at, errors = moved, tried
        if gained < _ENOUGH:
            break
    return at


def _loss(errors: Floats, scale: float) -> float:
    return float(np.sum(np.sqrt(1 + np.square(errors / scale)) - 1)) + 1e-12


def _slopes(
    residuals: Callable[[Floats], Floats], at: Floats, errors: Floats, limits: Floats
) -> Floats:
    """Return the slope of each residual along each parameter, shape (rows, parameters).

    Steps go down where the upper limit is near.
    """
    found = np.empty((len(errors), len(at)))
    for axis in range(len(at)):
        step = _STEP if at[axis] + _STEP <= limits[axis, 1] else -_STEP
        moved = at.copy()
        moved[axis] += step
        found[:, axis] = (residuals(moved) - errors) / step
    return found
