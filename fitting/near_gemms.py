"""What a few measured GEMMs of a GPU say of all its GEMMs.

How far off a model is varies from kernel to kernel as it states: of one kind alike,
and on its own (`sigma_independent`), of which most varies smoothly with sizes and the
rest is chance. The rows then say which of it is this GPU's: the mean of a Gaussian
process with that covariance (Rasmussen and Williams, Gaussian Processes for Machine
Learning, 2006, eq. 2.25); or of one in which all of the second is chance, where that
predicts rows that are left out better. The numbers below are as good as any within a
factor of two for P100 and P4, each left out of the fit of GEMMs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from perfc.costmodels import machine
from perfc.costmodels.kernels import Floats
from perfc.costmodels.pricing import log_factors
from perfc.fitting.near_rows import MOST_ROWS
from perfc.ir import Kernel

_CHANCE = 0.25
"""Share of a kernel's own variance that no other tells of."""

_OCTAVES = 2.5
"""How far a row tells of others."""

_UNLIKE = 0.5
"""How much less it does for each word that differs."""

_FAR_OFF = 2.0
"""Deviations from what others say of a row from which on it is noisier than they."""

_MOST_OFF = 1.5
"""Logarithm beyond which a row is not believed."""

_ROUNDS = 3


def gemm_fits(
    kernels: Sequence[Kernel],
    logs: Floats,
    noise: Floats,
    sigmas: tuple[float, float],
) -> dict[machine.Family, machine.KernelFit]:
    """Return the fits to rows of one type: a factor of each kind, and near rows.

    Args:
        kernels: GEMMs that were measured, of one dtype; the first `MOST_ROWS` count.
        logs: ln(measured / modelled), shape (rows,).
        noise: How much more a row's logarithm varies than the time that was measured;
            shape (rows,), 1 and above.
        sigmas: What the model states, shared and independent.

    Returns:
        By family, that of all kinds first; `sigma_shared` and `sigma_independent` are
        those of the model.

    """
    kernels, logs, noise = kernels[:MOST_ROWS], logs[:MOST_ROWS], noise[:MOST_ROWS]
    shared, own = sigmas
    families = [machine.family_of(kernel) for kernel in kernels]
    kinds = np.array([family.kind for family in families])
    place = machine.Place.of(kernels)
    # A board may be slower than any that was measured: by as much as kernels differ.
    together, smooth = shared**2 + own**2, (1 - _CHANCE) * own**2
    common = together * (kinds[:, np.newaxis] == kinds)
    alike = common + smooth * place.likeness(place, _OCTAVES, _UNLIKE)
    chance, logs = np.square(own * noise), np.clip(logs, -_MOST_OFF, _MOST_OFF)
    off, weights = _weights(alike, _CHANCE * chance, logs)
    off_alone, weights_alone = _weights(common, chance, logs)
    near = None
    if off < off_alone:
        near = machine.NearRows(
            _OCTAVES,
            _UNLIKE,
            tuple((smooth * weights).tolist()),
            tuple(map(tuple, place.sizes.tolist())),
            tuple(map(tuple, place.words.tolist())),
        )
    else:
        weights = weights_alone
    whole = families[0].whole
    found = {
        whole: machine.KernelFit(whole, _factor(1.0), shared, own, len(kernels), near)
    }
    for family in sorted(set(families)):
        rows = kinds == family.kind
        scale = float(np.exp(together * weights[rows].sum()))
        found[family] = machine.KernelFit(
            family, _factor(scale), shared, own, int(rows.sum())
        )
    return found


def _factor(scale: float) -> dict[str, float]:
    return {machine.START: 0.0, machine.SCALE: scale}


def gemm_factors(
    fits: Mapping[machine.Family, machine.KernelFit], kernels: Sequence[Kernel]
) -> Floats:
    """Return by what to multiply the model's times of *kernels*, shape (kernels,)."""
    known = machine.fits_of(tuple(fits.values()))
    found = [known.of(kernel) for kernel in kernels]
    scale = np.array([fit.values[machine.SCALE] if fit else 1.0 for fit in found])
    factors: Floats = scale * np.exp(log_factors(known, kernels))
    return factors


def _weights(alike: Floats, chance: Floats, logs: Floats) -> tuple[float, Floats]:
    """Return how far off rows are that are left out, and (alike + chance)^-1 logs.

    Rows that others contradict have more of chance.
    """
    more = np.ones(len(logs))
    for _ in range(_ROUNDS):
        inverse = np.linalg.inv(alike + np.diag(chance * more))
        alone = np.diag(inverse)
        # The variance that others expect of a row, and how far off they are (eq. 5.12).
        expected = 1 / alone - chance * more + chance
        off = inverse @ logs / alone
        more = np.maximum(1.0, off**2 / expected / _FAR_OFF**2)
    inverse = np.linalg.inv(alike + np.diag(chance * more))
    weights: Floats = inverse @ logs
    return float(np.abs(weights / np.diag(inverse)).mean()), weights
