"""What memory traffic costs: shares of the sheet's rates, and the L2 cache.

Its parameters are in `fitted/memory.toml`, from elementwise kernels.
"""

from __future__ import annotations

import attrs

from perfc.costmodels.constants import constants
from perfc.costmodels.fitted_files import fitted
from perfc.costmodels.kernels import Maths, Number
from perfc.costmodels.machine import Target
from perfc.costmodels.sheets import as_known


@attrs.frozen(kw_only=True)
class MemoryRates:
    """What streams get of memory and L2, the same on all GPUs.

    Attributes:
        stacked_share: Share of the nominal rate that they reach in HBM.
        pascal_share: What GP100 reaches of that share: the first memory controller for
            HBM2, which NVIDIA showed at 76 % of STREAM triad beside 95 % for Volta
            (2017; recalled, not looked up again).
        planar_share: Share of the nominal rate in GDDR.
        l2_bytes_per_clock: What streams take from L2 for each SM.
        l2_held: How much of a part of L2 a repeated stream fills before the first of it
            is lost.
        spill: From that to how much more its rate falls to memory's.

    """

    stacked_share: float
    pascal_share: float
    planar_share: float
    l2_bytes_per_clock: float
    l2_held: float
    spill: float


MEMORY_RATES = MemoryRates(**fitted("memory")["rates"])
"""What is shipped."""

STACKED_BUS_BITS = 1024
"""One HBM stack's bus; GDDR buses are narrower than this, all chips together."""

L2_SHARE = constants("streaming").number("l2_share")
"""Share of the sheet's L2 rate that lookups reach."""

SHARERS = constants("streaming").integer("sharers")
"""Kernels whose operands a cached tensor has to outlive."""

L2_PARTITIONS = constants("streaming").table("l2_partitions")
"""Halves of L2 by compute capability, each of which keeps what its own SMs read: data
that all SMs may read are held twice. One elsewhere.
"""


def stream_share(target: Target, rates: MemoryRates = MEMORY_RATES) -> float:
    """Return the share of the nominal memory rate that streams reach."""
    if rates is MEMORY_RATES:
        return target.once(_shipped_share)
    return _share(target, rates)


def _shipped_share(target: Target) -> float:
    return _share(target, MEMORY_RATES)


def _share(target: Target, rates: MemoryRates) -> float:
    fields = as_known(target).fields  # more bits by hand make no other memory
    bus_bits = fields.get("gpu.memory_bus_bits", STACKED_BUS_BITS)
    if isinstance(bus_bits, int | float) and bus_bits < STACKED_BUS_BITS:
        return rates.planar_share
    pascal = target.device.architecture == "Pascal"
    return rates.stacked_share * (rates.pascal_share if pascal else 1.0)


def cached_share(moved_bytes: Number, target: Target, maths: Maths[Number]) -> Number:
    """Return which share of the operands L2 still holds from earlier kernels."""
    held = 2 - moved_bytes * (SHARERS / target.device.l2.capacity_bytes)
    return maths.least(maths.most(held, 0.0), 1.0)


def repeated_share(
    moved_bytes: Number, target: Target, rates: MemoryRates, maths: Maths[Number]
) -> Number:
    """Return the share that L2 holds where one kernel is repeated on its operands."""
    device = target.device
    halves = L2_PARTITIONS.get(device.compute_capability, 1)
    fits_bytes = rates.l2_held * device.l2.capacity_bytes / halves
    over = moved_bytes / fits_bytes - 1
    return maths.least(maths.most(1 - over / rates.spill, 0.0), 1.0)


def stream_seconds(moved_bytes: Number, target: Target, maths: Maths[Number]) -> Number:
    """Return the time to move *moved_bytes* with all SMs, without the start."""
    memory_rate, l2_rate = target.once(_shipped_rates)
    cached = cached_share(moved_bytes, target, maths)
    return moved_bytes * ((1 - cached) / memory_rate + cached / l2_rate)


def streamed_seconds(
    moved_bytes: Number,
    repeated: Number,
    target: Target,
    rates: MemoryRates,
    maths: Maths[Number],
) -> Number:
    """Return the seconds to move *moved_bytes*, of one kernel or of many.

    *repeated* is 1 for kernels that are timed again and again on the same operands.
    """
    if rates is MEMORY_RATES:
        memory_rate, l2_rate = target.once(_shipped_rates)
    else:
        memory_rate, l2_rate = _stream_rates(target, rates)
    cached = cached_share(moved_bytes, target, maths)
    if maths.any(repeated):
        held = repeated_share(moved_bytes, target, rates, maths)
        cached = held * repeated + cached * (1.0 - repeated)
    return moved_bytes * ((1 - cached) / memory_rate + cached / l2_rate)


def _stream_rates(target: Target, rates: MemoryRates) -> tuple[float, float]:
    """Return how fast all SMs read the device's memory, and L2, in bytes per second."""
    device = target.device
    memory_rate = device.memory.bytes_per_s * stream_share(target, rates)
    sm_rate = rates.l2_bytes_per_clock * device.sm_clock_hz
    return memory_rate, max(device.sm_count * sm_rate, memory_rate)


def _shipped_rates(target: Target) -> tuple[float, float]:
    return _stream_rates(target, MEMORY_RATES)
