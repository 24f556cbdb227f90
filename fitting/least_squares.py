"""Coefficients of a sum of terms, none below zero, near what was believed before.

Minimises the sum of |predicted / measured - 1|, by least squares whose rows are
weighted again and again by the root of their last error (iteratively reweighted least
squares): a few rows that something disturbed then count little. A term that the rows
say little of stays where it was: the belief counts as `BELIEF` rows in which it makes
as much of the time as in those at hand. A term that makes next to nothing of these rows
would still go anywhere; stiffness holds it, however little it makes.
"""

from __future__ import annotations

import numpy as np

from perfc.costmodels.kernels import Floats

BELIEF = 0.3
"""Weight of what was believed before, in rows."""

_ROUNDS = 12
_SWEEPS = 300
_SMALL_ERROR = 0.02
"""Rows that are closer than this count alike."""


def fit_terms(  # noqa: PLR0913, PLR0917 - all are of one fit
    amounts: Floats,
    measured_s: Floats,
    before: Floats,
    offset_s: Floats | None = None,
    most: Floats | None = None,
    belief: float = BELIEF,
    stiffness: Floats | float = 0.0,
) -> Floats:
    """Return the coefficients that fit measured times best.

    Args:
        amounts: Seconds of each term at coefficient 1, not below 0; shape
            (rows, terms).
        measured_s: Shape (rows,), above 0.
        before: What the coefficients were believed to be, shape (terms,).
        offset_s: Seconds of each row that no term stands for; 0 if not given.
        most: What each coefficient cannot exceed, shape (terms,); any if not given.
        belief: Weight of what was believed, in rows.
        stiffness: Weight of a coefficient that is twice what was believed, in rows that
            are off by their whole time; of each, shape (terms,), or of all.

    Returns:
        Coefficients, shape (terms,), from 0 to *most*. A term without an amount in any
        row keeps what was believed.

    """
    offset = np.zeros(len(measured_s)) if offset_s is None else offset_s
    relative = amounts / measured_s[:, np.newaxis]
    wanted = 1 - offset / measured_s
    unit = np.sqrt(np.mean(np.square(relative), axis=0))
    used = unit > 0
    scaled = relative[:, used] / unit[used]
    believed = before[used] * unit[used]
    stiff = np.broadcast_to(stiffness, before.shape)[used]
    stiff = np.where(believed > 0, stiff / np.maximum(believed, 1e-12) ** 2, 0.0)
    limit = np.full(len(before), np.inf) if most is None else most
    limit = limit[used] * unit[used]
    weight = np.ones(len(measured_s))
    found = believed
    for _ in range(_ROUNDS):
        rows = scaled * weight[:, np.newaxis]
        normal = rows.T @ rows + np.diag(belief + stiff)
        right = rows.T @ (wanted * weight) + (belief + stiff) * believed
        found = _bounded(normal, right, found, limit)
        error = np.abs(scaled @ found - wanted)
        weight = 1 / np.sqrt(np.maximum(error, _SMALL_ERROR))
        weight /= weight.mean()
    result = before.copy()
    result[used] = found / unit[used]
    return result


def _bounded(normal: Floats, right: Floats, start: Floats, most: Floats) -> Floats:
    """Minimise x' normal x / 2 - right x with x from 0 to *most*, axis by axis.

    Cyclic coordinate descent: exact for a convex function with bounds on each axis.
    """
    x = np.clip(start, 0.0, most)
    for _ in range(_SWEEPS):
        last = x.copy()
        for axis in range(len(x)):
            slope = right[axis] - normal[axis] @ x
            moved = x[axis] + slope / normal[axis, axis]
            x[axis] = min(max(0.0, moved), most[axis])
        if np.abs(x - last).max(initial=0.0) <= 1e-7 * np.abs(x).max(initial=1e-30):
            break
    return x
