"""What memory traffic costs: shares of the sheet's rates, and the L2 cache.

Fitted on elementwise kernels: fp32 on P100, V100, T4 and A100 (NeuSight's
measurements, MIT) and fp8 quantisation on H100 and L40S (aiconfigurator,
Apache-2.0), 2026-11, by `benchmarks/fit_kernels.py`.
"""

from __future__ import annotations

import numpy as np

from perfc.costmodels.protocol import Floats
from perfc.costmodels.target import Target

STACKED_SHARE = 0.89
"""Share of the nominal rate that streams reach, HBM: V100, A100, H100 0.88 to 0.92.

P100 reaches 0.73 only, for no reason that its sheet gives.
"""

PLANAR_SHARE = 0.755
"""The same for GDDR: T4 0.74, L40S 0.77."""

STACKED_BUS_BITS = 1024
"""One HBM stack's bus; GDDR buses are narrower than this, all chips together."""

L2_SHARE = 0.6
"""Share of the sheet's L2 rate that streams reach: H100 0.54, L40S 1.1."""

SHARERS = 6
"""Kernels whose operands a cached tensor has to outlive.

In a graph other tensors pass through L2 between two uses; the measured products
rotate through six operand sets, which comes to the same.
"""


def stream_share(target: Target) -> float:
    """Return the share of the nominal memory rate that streams reach."""
    bus_bits = target.fields.get("gpu.memory_bus_bits", STACKED_BUS_BITS)
    planar = isinstance(bus_bits, int | float) and bus_bits < STACKED_BUS_BITS
    return PLANAR_SHARE if planar else STACKED_SHARE


def cached_share(moved_bytes: Floats, target: Target) -> Floats:
    """Return which share of the operands L2 still holds from earlier kernels."""
    held: Floats = np.clip(
        2 - moved_bytes * (SHARERS / target.device.l2.capacity_bytes), 0.0, 1.0
    )
    return held


def stream_seconds(moved_bytes: Floats, target: Target) -> Floats:
    """Return the time to move *moved_bytes* with all SMs, without the start."""
    device = target.device
    memory_rate = device.memory.bytes_per_s * stream_share(target)
    l2_rate = max(device.l2.bytes_per_s * L2_SHARE, memory_rate)
    cached = cached_share(moved_bytes, target)
    return moved_bytes * ((1 - cached) / memory_rate + cached / l2_rate)
