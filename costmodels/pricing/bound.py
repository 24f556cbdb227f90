"""The time that no kernel can beat: its flops and its bytes at the peak rates."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from perfc.costmodels import attention
from perfc.costmodels import kernels as tables
from perfc.costmodels.kernels import (
    ARRAYS,
    FLOATS,
    Floats,
    Indices,
    KernelTable,
    Maths,
    Number,
    OneSignature,
    Signatures,
)
from perfc.costmodels.locality import (
    Each,
    Lookups,
    has_tables,
    listed_tables,
    lookups_of,
    lookups_of_one,
)
from perfc.costmodels.machine import Target
from perfc.costmodels.memcpy import link_bytes

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
    doubtful = seconds < _bound_s(kernels.signatures, kernels.bytes, target, ARRAYS)
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
    moved = kernels.bytes.copy()
    looks_up = kernels.op == "embedding_bag"
    if looks_up.any():
        part, bags = _part(kernels, np.flatnonzero(looks_up))
        part, usable = _part(part, np.flatnonzero(part.once(listed_tables).usable))
        if len(part):
            found = _bytes_of_bags(part.signatures, lookups_of(part), ARRAYS)
            moved[bags[usable]] = found
    return _bound_s(kernels.signatures, moved, target, ARRAYS)


def _part(kernels: KernelTable, rows: Indices) -> tuple[KernelTable, Indices]:
    """Return some rows, and which; the table itself if they are all of it."""
    return (kernels if len(rows) == len(kernels) else kernels.take(rows)), rows


def at_least_bound_of_one(seconds: float, one: OneSignature, target: Target) -> float:
    """Raise *seconds* of one kernel to its lower bound; as `at_least_bound`."""
    moved, device = one.bytes, target.device
    rate = device.memory.bytes_per_s
    for capacity_bytes, bytes_per_s in target.once(_levels):
        if moved <= capacity_bytes:
            rate = bytes_per_s
            break
    # All work, nothing saved: no bound is above. It is sooner found, and rarely higher.
    computed_s = one.flops / device.flops_per_s.get(one.math, 1.0)
    if moved / rate <= seconds >= computed_s and one.op != "memcpy":
        return seconds
    return max(seconds, lower_bound_of_one(one, target))


def _levels(target: Target) -> list[tuple[int, float]]:
    """Return the capacity of each memory, fastest first, and at what rate it is read.

    No cache makes what lies behind it slower.
    """
    found: list[tuple[int, float]] = []
    rate = 0.0
    for memory in reversed(target.device.memories):
        rate = max(rate, memory.bytes_per_s)
        found.insert(0, (memory.capacity_bytes, rate))
    return found


def lower_bound_of_one(one: OneSignature, target: Target) -> float:
    """Return the lower bound of one kernel, in seconds.

    Raises:
        PerfcError: as `lower_bound`.

    """
    moved = one.bytes
    if one.op == "embedding_bag" and has_tables(one.kernel):
        moved = _bytes_of_bags(one, one.once(lookups_of_one), FLOATS)
    return _bound_s(one, moved, target, FLOATS)


def _bound_s(
    kernels: Signatures[Number], moved: Number, target: Target, maths: Maths[Number]
) -> Number:
    device, op = target.device, kernels.op
    moved_s = moved / device.memory.bytes_per_s
    for capacity_bytes, bytes_per_s in reversed(target.once(_levels)):
        held = moved <= capacity_bytes
        moved_s = maths.where(held, moved / bytes_per_s, moved_s)
    flops = _unavoidable_flops(kernels, maths)
    limit = kernels.limit_flops_per_s(target)
    tripled = (op == "attention") & (kernels.math == "fp32")
    if maths.any(tripled):
        fp32 = attention.fp32_flops_per_s(target)
        limit = maths.where(tripled, maths.most(limit, fp32), limit)
    computed_s = flops / limit
    seconds = maths.most(moved_s, computed_s)
    copies = op == "memcpy"
    if not maths.any(copies):
        return seconds
    crossing = copies & (kernels.text("kind") != "d2d")
    crossed_s = link_bytes(kernels, maths) / target.host_link.peak_bytes_per_s
    return maths.where(crossing, crossed_s, seconds)


def _unavoidable_flops(kernels: Signatures[Number], maths: Maths[Number]) -> Number:
    """Flops of the work, but for those that an algorithm saves.

    What a causal mask hides need not be computed, nor what Winograd's algorithm trades
    for additions of its transforms, which are kernels of their own.
    """
    flops, op = kernels.flops, kernels.op
    masked, convolves = op == "attention", op == "conv2d"
    if maths.any(masked):
        flops = flops * maths.where(masked, tables.executed_share(kernels, maths), 1.0)
    if not maths.any(convolves):
        return flops
    algorithm = kernels.text("algorithm")
    # Where nothing names the algorithm it may be the one with the fewest.
    window = (kernels.param("kernel") == 3) & (kernels.math == "fp32")  # noqa: PLR2004
    window &= kernels.param("stride", 1.0) * kernels.param("dilation", 1.0) == 1
    free = convolves & (algorithm == "") & window
    saved = maths.where(free, max(WINOGRAD_SAVES.values()), 1.0)
    for name, times in WINOGRAD_SAVES.items():
        saved = maths.where(convolves & (algorithm == name), times, saved)
    return flops / saved


def _bytes_of_bags(
    kernels: Signatures[Number],
    lookups: Lookups[Each, Number],
    maths: Maths[Number],
) -> Number:
    """Bytes of the work, but a row looked up twice need not be read twice."""
    distinct = lookups.distinct()
    forward = kernels.text("phase", "forward") == "forward"
    # A gradient writes the rows that it reads, and its own rows are read, too.
    times = lookups.spread(maths.where(forward, 1.0, 2.0))
    needed = times * distinct * lookups.row_bytes + lookups.count * _MIN_INDEX_BYTES
    written = maths.where(forward, kernels.bytes_written, 0.0)
    return maths.least(kernels.bytes, lookups.per_kernel(needed) + written)
