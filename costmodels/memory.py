"""What memory traffic costs: shares of the sheet's rates, and the L2 cache.

Fitted on elementwise kernels: fp32 on P100, V100, T4 and A100 (NeuSight's
measurements, MIT) and fp8 quantisation on H100 and L40S (aiconfigurator,
Apache-2.0), 2026-11, by `benchmarks/fit_kernels.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from perfc.costmodels.protocol import Flags, Floats
from perfc.costmodels.target import Target

STACKED_SHARE = 0.89
"""Share of the nominal rate that streams reach, HBM: V100, A100, H100 0.88 to 0.92."""

PASCAL_STACKED_SHARE = 0.76
"""The same for GP100, the first memory controller for HBM2: P100's rows reach 0.73 to
0.76, which was seen before the figure was chosen. NVIDIA showed 76 % of STREAM triad
beside 95 % for Volta when it presented that one (2017; recalled, not looked up again).
"""

PLANAR_SHARE = 0.755
"""The same for GDDR: T4 0.74, L40S 0.77."""

STACKED_BUS_BITS = 1024
"""One HBM stack's bus; GDDR buses are narrower than this, all chips together."""

L2_SHARE = 0.6
"""Share of the sheet's L2 rate that look-ups reach."""

L2_BYTES_PER_CLOCK = 18.0
"""What streams take from L2 for each SM: H100 20, L40S 17 (16 MB kept in L2)."""

SHARERS = 6
"""Kernels whose operands a cached tensor has to outlive.

In a graph other tensors pass through L2 between two uses; the measured products
rotate through six operand sets, which comes to the same.
"""

L2_PARTITIONS: Mapping[str, int] = MappingProxyType({"8.0": 2, "9.0": 2, "10.0": 2})
"""Halves of L2 by compute capability, each of which keeps what its own SMs read: data
that all SMs may read are held twice ("NVIDIA A100 Tensor Core GPU Architecture",
whitepaper, 2020). One elsewhere.
"""

SPILL = 0.3
"""From what fits into L2 to that much more, a repeated stream falls to memory's rate:
A100 between 20 and 28 MB, H100 25 and 32, L40S 90 and 130.
"""


def stream_share(target: Target) -> float:
    """Return the share of the nominal memory rate that streams reach."""
    bus_bits = target.fields.get("gpu.memory_bus_bits", STACKED_BUS_BITS)
    if isinstance(bus_bits, int | float) and bus_bits < STACKED_BUS_BITS:
        return PLANAR_SHARE
    pascal = target.device.architecture == "Pascal"
    return PASCAL_STACKED_SHARE if pascal else STACKED_SHARE


def cached_share(moved_bytes: Floats, target: Target) -> Floats:
    """Return which share of the operands L2 still holds from earlier kernels."""
    held: Floats = np.clip(
        2 - moved_bytes * (SHARERS / target.device.l2.capacity_bytes), 0.0, 1.0
    )
    return held


def repeated_share(moved_bytes: Floats, target: Target) -> Floats:
    """Return the same where one kernel is repeated on the same operands."""
    device = target.device
    halves = L2_PARTITIONS.get(device.compute_capability, 1)
    fits_bytes = device.l2.capacity_bytes / halves
    held: Floats = np.clip((1 + SPILL - moved_bytes / fits_bytes) / SPILL, 0.0, 1.0)
    return held


def stream_seconds(
    moved_bytes: Floats, target: Target, repeated: Flags | None = None
) -> Floats:
    """Return the time to move *moved_bytes* with all SMs, without the start.

    *repeated* says which kernels are timed again and again on the same operands.
    """
    device = target.device
    memory_rate = device.memory.bytes_per_s * stream_share(target)
    sm_rate = L2_BYTES_PER_CLOCK * device.sm_clock_hz
    l2_rate = max(device.sm_count * sm_rate, memory_rate)
    cached = cached_share(moved_bytes, target)
    if repeated is not None:
        cached = np.where(repeated, repeated_share(moved_bytes, target), cached)
    return moved_bytes * ((1 - cached) / memory_rate + cached / l2_rate)
