"""The time that no kernel can beat: its flops and its bytes at the peak rates."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from perfc.costmodels.causal import executed_share
from perfc.costmodels.embedding_bag import has_tables, lookups_of
from perfc.costmodels.memcpy import link_bytes
from perfc.costmodels.protocol import Floats, KernelTable
from perfc.costmodels.target import Target

_MIN_INDEX_BYTES = 4

WINOGRAD_SAVES: Mapping[str, float] = MappingProxyType(
    {"winograd": 4.0, "fused_winograd": 2.25}
)
"""Multiplications of a 3x3 convolution over those of F(4x4, 3x3) and F(2x2, 3x3)."""


def at_least_bound(seconds: Floats, kernels: KernelTable, target: Target) -> Floats:
    """Raise *seconds* to the lower bound where they are below it.

    Raises:
        PerfcError: a kernel computes in a mode that the target has not.

    """
    # Bytes that count every lookup bound the bound: unique rows, which take
    # longer to count, matter only to kernels that are faster than that.
    doubtful = seconds < _bound_s(kernels, kernels.bytes, target)
    if not doubtful.any():
        return seconds
    rows = np.flatnonzero(doubtful)
    raised = seconds.copy()
    raised[rows] = np.maximum(seconds[rows], lower_bound(kernels.take(rows), target))
    return raised


def lower_bound(kernels: KernelTable, target: Target) -> Floats:
    """Return a lower bound of each kernel's duration, in seconds.

    The larger of flops over the peak of the math mode and bytes over the rate
    of the fastest memory that holds them all; for copies between host and
    device, bytes over the bus's nominal rate.

    Raises:
        PerfcError: a kernel computes in a mode that the target has not.

    """
    return _bound_s(kernels, _unavoidable_bytes(kernels), target)


def _bound_s(kernels: KernelTable, moved: Floats, target: Target) -> Floats:
    device = target.device
    rate = np.full(len(kernels), device.memory.bytes_per_s)
    for memory in reversed(device.memories):
        rate = np.where(moved <= memory.capacity_bytes, memory.bytes_per_s, rate)
    seconds: Floats = moved / rate
    flops = _unavoidable_flops(kernels)
    computing = np.flatnonzero(flops > 0)
    if len(computing):
        peak = kernels.take(computing).peak_flops_per_s(target)
        seconds[computing] = np.maximum(seconds[computing], flops[computing] / peak)
    copies = kernels.op == "memcpy"
    if copies.any():
        crossing = np.flatnonzero(copies & (kernels.text("kind") != "d2d"))
        crossed = link_bytes(kernels.take(crossing))
        seconds[crossing] = crossed / target.host_link.peak_bytes_per_s
    return seconds


def _unavoidable_flops(kernels: KernelTable) -> Floats:
    """Flops of the work, but for those that an algorithm saves.

    What a causal mask hides need not be computed, nor what Winograd's algorithm trades
    for additions of its transforms, which are kernels of their own.
    """
    masked = np.flatnonzero(kernels.op == "attention")
    convolutions = kernels.op == "conv2d"
    if not len(masked) and not convolutions.any():
        return kernels.flops
    flops = kernels.flops.copy()
    if len(masked):
        flops[masked] *= executed_share(kernels.take(masked))
    algorithm = kernels.text("algorithm")
    # Where nothing names the algorithm it may be the one with the fewest.
    window = (kernels.param("kernel") == 3) & (kernels.math == "fp32")  # noqa: PLR2004
    window &= kernels.param("stride", 1.0) * kernels.param("dilation", 1.0) == 1
    free = convolutions & (algorithm == "") & window
    flops[free] /= max(WINOGRAD_SAVES.values())
    for name, saved in WINOGRAD_SAVES.items():
        flops[convolutions & (algorithm == name)] /= saved
    return flops


def _unavoidable_bytes(kernels: KernelTable) -> Floats:
    """Bytes of the work, but a row looked up twice need not be read twice."""
    moved = kernels.bytes
    bags = np.flatnonzero(kernels.op == "embedding_bag")
    bags = bags[[has_tables(kernels.kernels[i]) for i in bags.tolist()]]
    if not len(bags):
        return moved
    part = kernels.take(bags)
    lookups = lookups_of(part)
    # Whatever the popularity, one row per table must be read.
    distinct = np.where(
        lookups.uniform, lookups.distinct(), np.minimum(lookups.count, 1.0)
    )
    forward = part.text("phase", "forward") == "forward"
    # A gradient writes the rows that it reads, and its own rows are read, too.
    times = np.where(forward, 1, 2)[lookups.kernel]
    needed = times * distinct * lookups.row_bytes + lookups.count * _MIN_INDEX_BYTES
    written = np.where(forward, part.bytes_written, 0.0)
    least = lookups.per_kernel(needed, len(bags)) + written
    moved = moved.copy()
    moved[bags] = np.minimum(moved[bags], least)
    return moved
