"""What a model that was fitted on some GPUs is worth on another.

Sheets say what a GPU could do; a fit says which share of it kernels reach, on the GPUs
that it has seen. Elsewhere the share is carried over: the time is then computed, not
fitted, and its interval covers how far such guesses were off.
"""

from __future__ import annotations

from perfc.costmodels.constants import constants
from perfc.costmodels.kernels.protocol import Provenance
from perfc.costmodels.machine import Target

UNSEEN_SIGMA = constants("kernels").number("sigma_unseen")
"""Shared uncertainty on a GPU of another compute capability than those fitted."""

OTHER_VENDOR_SIGMA = constants("kernels").number("sigma_other_vendor")
"""Shared uncertainty on a GPU of another maker, with other libraries."""

NOWHERE: frozenset[str] = frozenset()
"""Compute capabilities seen by a model that is not fitted: it is analytic."""

PERFC_ROWS: frozenset[str] = frozenset({"9.0"})
"""Compute capabilities of GPUs that perfc has measured itself (`benchmarks/rows`)."""

_GENERIC = (
    "a generic CPU, not this one: `perfc calibrate --device cpu -o cpu.toml` measures "
    "this one in two minutes, and `--target cpu.toml` takes it"
)


def trust(
    sigma_shared: float, fitted_on: frozenset[str], target: Target
) -> tuple[Provenance, float]:
    """Return where a number for *target* comes from, and its shared uncertainty.

    *fitted_on* are the compute capabilities that the parameters were fitted on, and
    *sigma_shared* the uncertainty that holds there.
    """
    device = target.device
    if not device.runs_cuda:
        return Provenance.ANALYTIC, max(sigma_shared, OTHER_VENDOR_SIGMA)
    if device.compute_capability in fitted_on:
        return Provenance.FITTED, sigma_shared
    unseen = UNSEEN_SIGMA if fitted_on else 0.0
    return Provenance.ANALYTIC, max(sigma_shared, unseen)


def extrapolation_remark(target: Target) -> str | None:
    """Return a remark for the user of a GPU of another maker than the fitted ones.

    Or of a CPU that nobody has measured: its sheet is of another machine.
    """
    if target.device.runs_cuda:
        return None
    if target.device.synchronous:
        return None if target.profile else f"{target.name} is {_GENERIC}"
    return (
        f"no kernel of {target.device.vendor} GPUs was measured: efficiencies and host "
        f"overheads are those of NVIDIA GPUs and CUDA, on the rates of {target.name}'s "
        "sheet"
    )
