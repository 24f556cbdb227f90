"""What a target's profile says of a price: it is corrected by coefficients and rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import machine
from perfc.costmodels.kernels import OF_BOARDS, Estimate, KernelTable, Provenance
from perfc.costmodels.machine import NEAR_ROWS, SCALE, START, KernelFits, Target
from perfc.ir import Kernel


def as_calibrated(estimate: Estimate, kernels: KernelTable, target: Target) -> Estimate:
    """Correct an estimate by what the target's profile says."""
    fits = [target.fits.of(kernel) for kernel in kernels.kernels]
    if not any(fits):
        return estimate
    scale, start_s = np.ones(len(fits)), np.zeros(len(fits))
    shared = np.array(estimate.sigma_shared)
    own = np.array(estimate.sigma_independent)
    of_target = estimate.sigma_target.copy()
    provenance = list(estimate.provenance)
    for row, fit in enumerate(fits):
        if fit is None:
            continue
        shared[row], own[row] = fit.sigma_shared, fit.sigma_independent
        of_target[OF_BOARDS, row] = 0.0  # another day stays
        provenance[row] = Provenance.FITTED
        if fit.is_correction:
            scale[row] = fit.values[SCALE]
            start_s[row] = fit.values[START] * 1e-6
    near = np.exp(log_factors(target.fits, kernels.kernels))
    seconds = (start_s + scale * estimate.seconds) * near
    names = _near_names(target.fits, kernels.kernels)
    models = [
        f"{model}{NEAR_ROWS}{name}" if name else model
        for model, name in zip(estimate.model, names, strict=True)
    ]
    return Estimate(seconds, shared, own, models, provenance, of_target)


def log_factors(fits: KernelFits, kernels: Sequence[Kernel]) -> NDArray[np.float64]:
    """Return ln(measured / modelled) as rows near each kernel have it."""
    found = np.zeros(len(kernels))
    for fit, rows in fits.wholes(kernels):
        part = [kernels[row] for row in rows]
        if fit.near is not None:
            found[rows] += fit.near.log_factor(part)
        if fit.shipped:
            from perfc.costmodels import cpu  # noqa: PLC0415 - of CPUs alone

            known = cpu.shipped_rows()[fit.family]
            found[rows] += fit.shipped * known.log_factor(part)
    return np.clip(found, -machine.MOST, machine.MOST)


def _near_names(fits: KernelFits, kernels: Sequence[Kernel]) -> list[str]:
    """Return the rows that each kernel lies between; nothing far from all."""
    found = [""] * len(kernels)
    for fit, rows in fits.wholes(kernels):
        if fit.near is None:
            continue
        names = fit.near.names([kernels[row] for row in rows])
        for row, name in zip(rows, names, strict=True):
            found[row] = name
    return found
