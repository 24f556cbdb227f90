"""Copies between host and device: latency and rate of the host link."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.protocol import (
    Estimate,
    KernelTable,
    Provenance,
    uniform_estimate,
)
from perfc.costmodels.target import Target

STAGED_BYTES = 256 << 10
"""Of pageable memory that the driver stages before the device begins to copy.

What comes after waits for the host to stage it. Copies of 104 and 208 KiB run at the
rate of pinned memory in a trace of DLRM on V100, which was seen before this was chosen.
"""


@attrs.frozen
class MemcpyModel:
    """Latency plus bytes over the link's rate, pinned or pageable."""

    name: str = "memcpy"
    priority: int = 60
    ops: frozenset[str] = frozenset({"memcpy"})
    sigma_shared: float = 0.1
    """Rates of hosts with the same link differ by this much."""
    sigma_independent: float = 0.1

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim copies from and to the host."""
        return np.isin(kernels.text("kind"), ("h2d", "d2h"))

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows; a copy that does not say `pinned` is from pinned memory."""
        link = target.host_link
        rates = {"h2d": link.h2d_bytes_per_s, "d2h": link.d2h_bytes_per_s}
        rate = np.array([rates[k.params.text("kind")] for k in kernels.kernels])
        pinned = [k.params.flag("pinned", default=True) for k in kernels.kernels]
        moved = link_bytes(kernels)
        staged = np.where(pinned, 0.0, np.maximum(moved - STAGED_BYTES, 0.0))
        return uniform_estimate(
            link.latency_s
            + (moved - staged) / rate
            + staged / np.minimum(link.pageable_bytes_per_s, rate),
            model=self.name,
            provenance=Provenance.ANALYTIC,
            sigma_shared=self.sigma_shared,
            sigma_independent=self.sigma_independent,
        )


def link_bytes(kernels: KernelTable) -> NDArray[np.float64]:
    """Return the bytes that cross the link; work counts them read and written."""
    return np.maximum(
        kernels.param("bytes"), np.maximum(kernels.bytes_read, kernels.bytes_written)
    )


MEMCPY = MemcpyModel()
"""The built-in instance."""
