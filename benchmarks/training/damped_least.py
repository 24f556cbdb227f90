"""Least squares that outliers do not move, by numpy alone.

The loss of `training.robust`, the least of which is found by damped Gauss-Newton steps
(Marquardt, 1963) whose rows weigh less the farther they are off. A step ends at the
limits; what lies at one and would go on is held there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

_STEP = 0.02
"""How far a parameter's logarithm is moved to find a slope."""

_MOST_STEPS, _TRIES = 1000, 12
_ENOUGH = 1e-7
"""Share of the loss that a step must save for another one to be tried."""


def damped_least(
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
        scale: Of residuals: beyond it a row counts by its size, not its square.

    """
    low, high = limits.T
    x = np.clip(first, low, high)
    damping, tries = 1e-2, 0
    errors = residuals(x)
    slopes = _slopes(residuals, errors, x, high)
    for _ in range(_MOST_STEPS):
        loss = _loss(errors, scale)
        down = _step(errors, slopes, x, limits, scale, damping)
        moved = np.clip(x - down, low, high)
        there = residuals(moved)
        saved = loss - _loss(there, scale)
        if saved <= 0:
            damping, tries = 4 * damping, tries + 1
            if tries == _TRIES:
                break
            continue
        x, errors, tries = moved, there, 0
        if saved < _ENOUGH * loss:
            break
        damping = max(damping / 5, 1e-8)
        slopes = _slopes(residuals, errors, x, high)
    return x


def _loss(errors: Floats, scale: float) -> float:
    return float(np.sum(np.sqrt(1 + np.square(errors / scale)) - 1))


def _slopes(
    residuals: Callable[[Floats], Floats], errors: Floats, x: Floats, most: Floats
) -> Floats:
    """Return the slopes, shape (rows, parameters); downwards where a limit is near."""
    steps = np.where(x + _STEP <= most, _STEP, -_STEP)
    moved = np.stack([residuals(x + each) for each in np.diag(steps)], axis=1)
    found: Floats = (moved - errors[:, np.newaxis]) / steps
    return found


def _step(  # noqa: PLR0913, PLR0917 - all are of one step
    errors: Floats,
    slopes: Floats,
    x: Floats,
    limits: Floats,
    scale: float,
    damping: float,
) -> Floats:
    """Return how far to go down, at most 1 along each parameter."""
    weights = 1 / np.sqrt(1 + np.square(errors / scale))
    gradient = slopes.T @ (weights * errors)
    low, high = limits.T
    free = ~(((x <= low) & (gradient > 0)) | ((x >= high) & (gradient < 0)))
    used = slopes[:, free]
    normal = used.T @ (weights[:, np.newaxis] * used)
    normal += damping * np.diag(np.diag(normal) + _ENOUGH)
    found = np.zeros_like(x)
    found[free] = np.linalg.solve(normal, gradient[free])
    return np.clip(found, -1.0, 1.0)
