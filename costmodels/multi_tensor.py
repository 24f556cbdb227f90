"""Kernels over lists of tensors: `torch._foreach_*` and fused optimizers.

    t = floor + start + max(bytes / (memory rate * share), largest chunk / block rate)

A thread block works through one chunk of up to 65536 elements alone, at what one block
can have in flight; many blocks together reach the memory's rate.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.constants import constants
from perfc.costmodels.kernels import (
    ARRAYS,
    FLOATS,
    Estimate,
    KernelTable,
    Maths,
    Number,
    OneSignature,
    Priced,
    Signatures,
    trust,
    uniform_estimate,
)
from perfc.costmodels.machine import Target
from perfc.costmodels.streaming import stream_seconds

_CONSTANTS = constants("multi_tensor")


@attrs.frozen
class MultiTensorModel:
    """Chunks of tensors, one a thread block."""

    name: str = "multi-tensor"
    priority: int = 50
    ops: frozenset[str] = frozenset({"foreach", "optimizer_step"})
    start_s: float = _CONSTANTS.number("start_s")
    share: float = _CONSTANTS.number("share")
    """Share of the rate of an elementwise kernel."""
    block_bytes_per_s: float = _CONSTANTS.number("block_bytes_per_s")
    sigma_shared: float = _CONSTANTS.number("sigma_shared")
    sigma_independent: float = _CONSTANTS.number("sigma_independent")
    fitted_on: frozenset[str] = frozenset({"7.0", "8.0"})
    """Compute capabilities of the GPUs in those traces."""

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim all of them."""
        return np.ones(len(kernels), dtype=np.bool_)

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows."""
        provenance, sigma_shared = trust(self.sigma_shared, self.fitted_on, target)
        return uniform_estimate(
            self._seconds(kernels.signatures, target, ARRAYS),
            model=self.name,
            provenance=provenance,
            sigma_shared=sigma_shared,
            sigma_independent=self.sigma_independent,
        )

    def claims_one(self, one: OneSignature, target: Target) -> bool:
        """Claim it."""
        return True

    def estimate_one(self, one: OneSignature, target: Target) -> Priced:
        """Price one kernel."""
        seconds = self._seconds(one, target, FLOATS)
        provenance, sigma_shared = trust(self.sigma_shared, self.fitted_on, target)
        return Priced(seconds, sigma_shared, self.sigma_independent, provenance)

    def _seconds(
        self, kernels: Signatures[Number], target: Target, maths: Maths[Number]
    ) -> Number:
        moved = kernels.bytes
        elements = maths.most(kernels.param("elements"), 1.0)
        chunk_bytes = moved / elements * kernels.param("largest_chunk")
        streamed_s = stream_seconds(moved, target, maths) / self.share
        longest_s = maths.most(streamed_s, chunk_bytes / self.block_bytes_per_s)
        return target.device.kernel_floor_s + self.start_s + longest_s


MULTI_TENSOR = MultiTensorModel()
"""The built-in instance."""
