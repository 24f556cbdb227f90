"""The fallback: a share of the roofline, for kernels that no model knows."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.constants import constants
from perfc.costmodels.kernels import (
    Estimate,
    KernelTable,
    Number,
    OneSignature,
    Priced,
    Provenance,
)
from perfc.costmodels.machine import Target
from perfc.costmodels.pricing import lower_bound, lower_bound_of_one

_CONSTANTS = constants("roofline")


@attrs.frozen
class RooflineModel:
    """Lower bound over a fixed efficiency, plus the kernel floor."""

    name: str = "roofline"
    priority: int = 0
    ops: frozenset[str] | None = None
    efficiency: float = _CONSTANTS.number("efficiency")
    sigma_shared: float = _CONSTANTS.number("sigma_shared")
    sigma_known: float = _CONSTANTS.number("sigma_known")
    """Independent, for an op whose work is known."""
    sigma_unknown: float = _CONSTANTS.number("sigma_unknown")
    """Independent, for an op of which only the bytes are known."""

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim everything."""
        return np.ones(len(kernels), dtype=np.bool_)

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows."""
        known = kernels.known
        return Estimate(
            self._seconds(lower_bound(kernels, target), target),
            np.full(len(known), self.sigma_shared),
            np.where(known, self.sigma_known, self.sigma_unknown),
            [self.name] * len(known),
            [self._provenance(known=k) for k in known.tolist()],
        )

    def claims_one(self, one: OneSignature, target: Target) -> bool:
        """Claim it."""
        return True

    def estimate_one(self, one: OneSignature, target: Target) -> Priced:
        """Price one kernel."""
        return Priced(
            self._seconds(lower_bound_of_one(one, target), target),
            self.sigma_shared,
            self.sigma_known if one.kernel.known else self.sigma_unknown,
            self._provenance(known=one.kernel.known),
        )

    def _seconds(self, bound_s: Number, target: Target) -> Number:
        return bound_s / self.efficiency + target.device.kernel_floor_s

    @staticmethod
    def _provenance(*, known: bool) -> Provenance:
        return Provenance.ANALYTIC if known else Provenance.ASSUMED


ROOFLINE = RooflineModel()
"""The built-in instance."""
