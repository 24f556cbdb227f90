"""Kernels over lists of tensors: `torch._foreach_*` and fused optimizers.

    t = floor + start + max(bytes / (memory rate * share), largest chunk / block rate)

A thread block works through one chunk of up to 65536 elements alone, at what one block
can have in flight; many blocks together reach the memory's rate.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

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


@attrs.frozen
class MultiTensorModel:
    """Chunks of tensors, one a thread block.

    The share and the rate of a block are from `multi_tensor_apply_kernel` in traces of
    ResNet-50 training on V100-SXM2 and A100 (HolisticTraceAnalysis, MIT): lists of
    25.6 M elements at 0.89 to 0.99 (V100) and 0.80 to 0.96 (A100) of what elementwise
    kernels reach; few chunks at 23 to 28 GB/s a block on both.
    """

    name: str = "multi-tensor"
    priority: int = 50
    ops: frozenset[str] = frozenset({"foreach", "optimizer_step"})
    start_s: float = 1e-6
    share: float = 0.93
    """Of the rate of an elementwise kernel."""
    block_bytes_per_s: float = 25e9
    sigma_shared: float = 0.15
    sigma_independent: float = 0.2
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
