"""Wave scaling: a kernel's time on another GPU from how it was launched.

G. Yu et al., "Habitat: A Runtime-Based Computational Performance Predictor for Deep
Neural Network Training", USENIX ATC 2021, section 3.2: blocks run in waves, and a wave
takes as long as its bytes or its arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import attrs

from perfc.costmodels.constants import constants
from perfc.costmodels.machine.target import Device
from perfc.ir import Work

WAVE_SIGMA = constants("kernels").number("sigma_wave")
"""Uncertainty of the logarithm of a ratio."""

_BLOCKS_PER_SM: Mapping[str, int] = {
    "7.5": 16,
    "8.6": 16,
    "8.7": 16,
    "8.9": 24,
    "12.0": 24,
}
_MOST_BLOCKS = 32
"""Resident blocks of an SM by compute capability, else this (CUDA C++ Programming
Guide, technical specifications per compute capability)."""

_REGISTERS_AT_ONCE = 256
"""A warp's registers are allocated by as many (ibid.)."""


class HasMultiprocessors(Protocol):
    """Anything with multiprocessors: a target's device, or one that a trace tells."""

    @property
    def compute_capability(self) -> str:
        """Capability, as `8.0`."""
        ...

    @property
    def sm_count(self) -> int:
        """How many there are."""
        ...

    @property
    def warp_size(self) -> int:
        """Threads of a warp."""
        ...

    @property
    def max_threads_per_sm(self) -> int:
        """Threads that one holds at a time."""
        ...

    @property
    def registers_per_sm(self) -> int:
        """Registers of 32 bits that one has."""
        ...

    @property
    def shared_memory_bytes_per_sm(self) -> int:
        """Shared memory of one."""
        ...


@attrs.frozen
class Multiprocessors:
    """The streaming multiprocessors of a GPU, as its driver tells them.

    Attributes:
        compute_capability: As `8.0`.
        sm_count: How many there are.
        warp_size: Threads of a warp.
        max_threads_per_sm: Threads that one holds at a time.
        registers_per_sm: Registers of 32 bits that one has.
        shared_memory_bytes_per_sm: Shared memory of one.

    """

    compute_capability: str
    sm_count: int
    warp_size: int
    max_threads_per_sm: int
    registers_per_sm: int
    shared_memory_bytes_per_sm: int


def blocks_per_sm(
    device: HasMultiprocessors, threads: int, registers: int = 0, shared_bytes: int = 0
) -> int:
    """Return how many blocks an SM holds at a time, at least 1.

    Args:
        device: The GPU.
        threads: Threads of a block.
        registers: 32-bit registers of a thread; 0 if not known.
        shared_bytes: Shared memory of a block.

    """
    held = _held(device, threads, registers, shared_bytes)
    limits = (has // one for has, one in zip(_has(device), held, strict=True) if one)
    return max(1, min(limits))


def blocks_left(
    device: HasMultiprocessors, block: tuple[int, int, int], other: tuple[int, int, int]
) -> int:
    """Return how many blocks an SM may hold for a block of another kernel to fit.

    Args:
        device: The GPU.
        block: Threads, registers of a thread and shared memory of a block; 0 for what
            is not known.
        other: The same of the block that shall fit beside such blocks.

    """
    mine, its = _held(device, *block), _held(device, *other)
    return min(
        max(0, has - taken) // one
        for has, one, taken in zip(_has(device), mine, its, strict=True)
        if one
    )


def _has(device: HasMultiprocessors) -> tuple[int, int, int, int]:
    """Return the blocks, threads, registers and shared memory of an SM."""
    return (
        _BLOCKS_PER_SM.get(device.compute_capability, _MOST_BLOCKS),
        device.max_threads_per_sm,
        device.registers_per_sm,
        device.shared_memory_bytes_per_sm,
    )


def _held(
    device: HasMultiprocessors, threads: int, registers: int, shared_bytes: int
) -> tuple[int, int, int, int]:
    """Return the part of each of them that a block takes; 0 if not known."""
    warps = -(-threads // device.warp_size)
    of_warp = registers * device.warp_size
    of_warp = -(-of_warp // _REGISTERS_AT_ONCE) * _REGISTERS_AT_ONCE
    return 1, warps * device.warp_size, warps * of_warp, shared_bytes


def memory_boundedness(device: Device, work: Work | None) -> float:
    """Return gamma: 1 for a kernel that waits for memory, 0 for one that computes.

    Of a kernel of which flops and bytes are not known it is 1, as in Habitat.

    Args:
        device: The GPU that is scaled to.
        work: Flops and bytes of the kernel.

    """
    if work is None or not work.flops:
        return 1.0
    if not work.bytes:
        return 0.0
    intensity = work.flops / work.bytes
    ridge = device.flops_per_s["fp32"] / device.memory.bytes_per_s
    if intensity < ridge:
        return 1 - intensity / (2 * ridge)
    return ridge / (2 * intensity)


def wave_ratio(  # noqa: PLR0913 - the launch, and two GPUs
    origin: Device,
    destination: Device,
    *,
    blocks: int,
    threads: int,
    registers: int = 0,
    shared_bytes: int = 0,
    work: Work | None = None,
) -> float:
    """Return a kernel's time on *destination* as a multiple of that on *origin*.

    Args:
        origin: Where it was measured.
        destination: Where it shall run.
        blocks: Blocks of the grid.
        threads: Threads of a block.
        registers: 32-bit registers of a thread; 0 if not known.
        shared_bytes: Shared memory of a block.
        work: Flops and bytes; None if not known.

    """
    gamma = memory_boundedness(destination, work)
    clocks = origin.sm_clock_hz / destination.sm_clock_hz
    waves = [
        device.sm_count * blocks_per_sm(device, threads, registers, shared_bytes)
        for device in (origin, destination)
    ]
    if blocks < min(waves):  # less than a wave on both: only the longest SM counts
        longest = [math.ceil(blocks / d.sm_count) for d in (origin, destination)]
        return float((clocks * longest[1] / longest[0]) ** (1 - gamma))
    # With a wave or more the rates of the whole devices decide. As in Habitat, waves
    # are not rounded up: one block more would make the ratio jump by a wave.
    memory = origin.memory.bytes_per_s / destination.memory.bytes_per_s
    compute = clocks * origin.sm_count / destination.sm_count
    return float(memory**gamma * compute ** (1 - gamma))
