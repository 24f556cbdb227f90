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
from perfc.ir import Kernel

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
    modes = [kernels.kernels[i].math for i in computing.tolist()]
    peaks = {mode: target.peak(mode) for mode in sorted(set(modes))}
    peak = np.array([peaks[mode] for mode in modes])
    seconds[computing] = np.maximum(seconds[computing], flops[computing] / peak)
    copies = _rows_of(kernels, "memcpy")
    crossing = [i for i in copies if kernels.kernels[i].params.get("kind") != "d2d"]
    if crossing:
        crossed = link_bytes(kernels.take(np.array(crossing)))
        seconds[crossing] = crossed / target.host_link.peak_bytes_per_s
    return seconds


def _rows_of(kernels: KernelTable, op: str) -> list[int]:
    return [i for i, kernel in enumerate(kernels.kernels) if kernel.op == op]


def _unavoidable_flops(kernels: KernelTable) -> Floats:
    """Flops of the work, but for those that an algorithm saves.

    What a causal mask hides need not be computed, nor what Winograd's algorithm trades
    for additions of its transforms, which are kernels of their own.
    """
    masked = _rows_of(kernels, "attention")
    winograd = [
        i
        for i in _rows_of(kernels, "conv2d")
        if kernels.kernels[i].params.get("algorithm") in WINOGRAD_SAVES
    ]
    if not masked and not winograd:
        return kernels.flops
    flops = kernels.flops.copy()
    if masked:
        flops[masked] *= executed_share(kernels.take(np.array(masked)))
    for row in winograd:
        flops[row] /= WINOGRAD_SAVES[str(kernels.kernels[row].params["algorithm"])]
    return flops


def _is_forward(kernel: Kernel) -> bool:
    return kernel.params.get("phase", "forward") == "forward"


def _unavoidable_bytes(kernels: KernelTable) -> Floats:
    """Bytes of the work, but a row looked up twice need not be read twice."""
    moved = kernels.bytes
    bags = [
        i for i in _rows_of(kernels, "embedding_bag") if has_tables(kernels.kernels[i])
    ]
    if not bags:
        return moved
    part = kernels.take(np.array(bags))
    lookups = lookups_of(part)
    # Whatever the popularity, one row per table must be read.
    distinct = np.where(
        lookups.uniform, lookups.distinct(), np.minimum(lookups.count, 1.0)
    )
    forward = np.array([_is_forward(kernel) for kernel in part.kernels])
    # A gradient writes the rows that it reads, and its own rows are read, too.
    times = np.where(forward, 1, 2)[lookups.kernel]
    needed = times * distinct * lookups.row_bytes + lookups.count * _MIN_INDEX_BYTES
    written = np.where(forward, part.bytes_written, 0.0)
    least = lookups.per_kernel(needed, len(bags)) + written
    moved = moved.copy()
    moved[bags] = np.minimum(moved[bags], least)
    return moved
