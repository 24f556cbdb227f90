"""How far measured rows tell of others: by leaving out one after another.

Of each family that `octaves`, `unlike` and noise for which each row is predicted best
by the others (Rasmussen and Williams, 2006, eq. 5.12); none where the model alone is
as good. Rows that something disturbed are noisier than others: as much as they are
further off than most.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats
from perfc.costmodels.machine import NearRows, Place
from perfc.ir import Kernel

MOST_ROWS = 400
"""More of a family are not taken: the first, which are of all sizes."""

_OCTAVES = (1.0, 2.0, 4.0, 8.0)
_UNLIKE = (1.0, 0.7, 0.3)
_NOISE = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Variance of the noise over that of the differences."""

_LEAST_GAIN = 0.02
"""Least gain, a share of the error of rows left out; below it the model stays alone."""

_FAR_OFF = 2.0
"""Median errors from which on a row is noisier than others."""


@attrs.frozen(eq=False)
class _Found:
    """What leaving out rows says.

    Attributes:
        octaves: As in `NearRows`.
        unlike: As in `NearRows`.
        noise: Variance.
        errors: Of each row, when it was left out.

    """

    octaves: float
    unlike: float
    noise: float
    errors: Floats

    @property
    def loss(self) -> float:
        """Mean of the errors."""
        return float(np.abs(self.errors).mean())


def fit_near_rows(
    kernels: Sequence[Kernel], logs: Floats, noise: Floats, most: int = MOST_ROWS
) -> NearRows | None:
    """Return the rows of one op that correct a model; None if they gain nothing.

    Args:
        kernels: What ran.
        logs: ln(measured / modelled), shape (rows,).
        noise: How much more a row's logarithm varies than the time that was measured;
            shape (rows,), 1 and above; less for the mean of several.
        most: Rows from which on others are not taken.

    """
    kernels, logs, noise = kernels[:most], logs[:most], noise[:most]
    place = Place.of(kernels)
    # The result that predicts rows that are left out best.
    unlike = _UNLIKE if place.words.shape[1] else _UNLIKE[:1]
    found = (
        each
        for octaves in _OCTAVES
        for share in unlike
        for each in _left_out(place, logs, noise, octaves, share)
    )
    first = min(found, key=lambda each: each.loss)
    usual = float(np.median(np.abs(first.errors))) or 1.0
    noise = noise * np.maximum(np.abs(first.errors) / (_FAR_OFF * usual), 1.0)
    again = _left_out(place, logs, noise, first.octaves, first.unlike)
    best = min(again, key=lambda each: each.loss)
    alone = float(np.abs(logs).mean())
    if best.loss > (1 - _LEAST_GAIN) * alone:
        return None
    likeness = place.likeness(place, best.octaves, best.unlike)
    weights = np.linalg.solve(likeness + best.noise * np.diag(noise**2), logs)
    return NearRows(
        best.octaves,
        best.unlike,
        tuple(weights.tolist()),
        tuple(map(tuple, place.sizes.tolist())),
        tuple(map(tuple, place.words.tolist())),
    )


def _left_out(
    place: Place, logs: Floats, noise: Floats, octaves: float, unlike: float
) -> list[_Found]:
    """Return the errors of rows that were left out, one result for each noise.

    With D = diag(noise) all of (K + s D^2)^-1 = D^-1 (D^-1 K D^-1 + s)^-1 D^-1 have the
    same eigenvectors in the middle.
    """
    likeness = place.likeness(place, octaves, unlike) / np.outer(noise, noise)
    values, vectors = np.linalg.eigh(likeness)
    turned = vectors.T @ (logs / noise)
    results: list[_Found] = []
    for variance in _NOISE:
        share = 1 / (np.maximum(values, 0.0) + variance)
        solved = vectors @ (share * turned)
        diagonal = np.square(vectors) @ share
        errors = noise * solved / diagonal
        results.append(_Found(octaves, unlike, variance, errors))
    return results
