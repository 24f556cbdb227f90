"""The time that the flops and the bytes of a kernel take at the peak rates."""

from __future__ import annotations

from perfc.costmodels.kernels.maths import Maths, Number
from perfc.costmodels.kernels.signatures import Signatures
from perfc.costmodels.machine import Target


def memory_levels(target: Target) -> list[tuple[int, float]]:
    """Return the capacity of each memory, fastest first, and at what rate it is read.

    No cache makes what lies behind it slower.
    """
    found: list[tuple[int, float]] = []
    rate = 0.0
    for memory in reversed(target.device.memories):
        rate = max(rate, memory.bytes_per_s)
        found.insert(0, (memory.capacity_bytes, rate))
    return found


def work_bound_s(
    kernels: Signatures[Number],
    target: Target,
    maths: Maths[Number],
    *,
    moved: Number | None = None,
    flops: Number | None = None,
) -> Number:
    """Return the larger of flops over the peak of the math mode and bytes over a rate.

    It is the rate of the fastest memory that holds them all.

    Args:
        kernels: Of which kernels.
        target: What they run on.
        maths: Of one kernel or of many.
        moved: Bytes that must move, if not all that their work counts.
        flops: Flops that must be done, if not all of them.

    """
    done = kernels.flops if flops is None else flops
    computed_s = done / kernels.limit_flops_per_s(target)
    needed = kernels.bytes if moved is None else moved
    return maths.most(moved_s(needed, target, maths), computed_s)


def moved_s(moved: Number, target: Target, maths: Maths[Number]) -> Number:
    """Return the seconds of bytes at the rate of the fastest memory that holds all."""
    found = moved / target.device.memory.bytes_per_s
    for capacity_bytes, bytes_per_s in reversed(target.once(memory_levels)):
        found = maths.where(moved <= capacity_bytes, moved / bytes_per_s, found)
    return found
