"""Kernels that were measured cost what was measured.

A profile holds a table of the kernels that were timed (`sheets/measured_section.py`).
One with all that decides its time as in the table takes that time, before any model is
asked; any other is left to the models, which the profile corrects near its rows
(`machine/near_rows.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import machine
from perfc.costmodels.gemm import BESIDE, without_beside
from perfc.costmodels.kernels import SOFTWARE, Estimate, KernelTable, Provenance
from perfc.costmodels.pricing.listed import MEASURED_NAME
from perfc.costmodels.pricing.timing import MET
from perfc.costmodels.streaming import IDLE, REPEATED
from perfc.ir import Kernel

_HOW = frozenset({REPEATED, IDLE, MET, SOFTWARE})
"""Parameters of how a kernel was timed, not of what it is."""

_BESIDE = _HOW | BESIDE

_APART: Mapping[str, frozenset[str]] = {
    "conv2d": _BESIDE | {"algorithm"},
    "conv3d": _BESIDE | {"algorithm"},
}
"""Parameters that no measured row has: the launch graph names the algorithm of a
convolution, which the library chooses alike in a row."""


def measured_signature(kernel: Kernel) -> machine.Signature:
    """Return the signature that a kernel is looked up by in a profile."""
    return machine.signature_of(kernel, _APART.get(kernel.op, _BESIDE))


def measured_kernel(
    kernel: Kernel, target: machine.Target
) -> machine.MeasuredKernel | None:
    """Return the measurement of exactly this kernel in the target's profile.

    One that was timed on the same operands again and again is not one that was not.
    """
    if kernel.op not in target.measured.ops or not kernel.known:
        return None
    found = target.measured.find(measured_signature(kernel))
    if found is None or (kernel.params.get(REPEATED) and not found.repeated):
        return None
    return found


@attrs.frozen
class MeasuredModel:
    """The table of the target's profile."""

    name: str = MEASURED_NAME
    priority: int = 90
    ops: frozenset[str] | None = None

    def claims(self, kernels: KernelTable, target: machine.Target) -> NDArray[np.bool_]:
        """Claim kernels that are in the table."""
        claimed = np.zeros(len(kernels), dtype=np.bool_)
        kinds, at = kernels.kinds
        for number, (op, _, _) in enumerate(kinds):
            if op not in target.measured.ops:
                continue
            rows = np.flatnonzero(at == number)
            chosen = kernels.take(rows).kernels
            found = [measured_kernel(kernel, target) is not None for kernel in chosen]
            claimed[rows] = found
        return claimed

    def estimate(self, kernels: KernelTable, target: machine.Target) -> Estimate:
        """Say what was measured, without what the launch graph has beside it."""
        found = [
            target.measured.by_signature[measured_signature(kernel)]
            for kernel in kernels.kernels
        ]
        seconds = np.array([each.seconds for each in found])
        return Estimate(
            without_beside(seconds, kernels, target),
            np.full(len(found), machine.ANOTHER_DAY),
            np.array([each.own_sigma for each in found]),
            [self.name] * len(found),
            [Provenance.MEASURED] * len(found),
        )


MEASURED = MeasuredModel()
"""The built-in instance."""
