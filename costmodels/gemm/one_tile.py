"""The time of a GEMM by one tile: what a search among tiles asks for.

Libraries choose among tiles that they know to be good (`tiles`). Who writes kernels
chooses among others, too: of any sides, with steps of any depth, by any number of
warps. The formula is that of `formula`, of one tile; beside it stand the limits that a
library's tiles keep and others may not:

- An SM holds so many blocks at a time, by their threads, accumulators and shared
  memory. Where those are fewer than fill it, each round takes longer than its share.
- A step waits for its operands. With `stages` buffers, `stages - 1` steps are under way
  while one is computed, so that a step takes no less than `latency / (stages - 1)`;
  with one buffer nothing is, and both times add up.
- Warps read their operands from shared memory, each its own rows and columns. The more
  warps share a tile, the more often the same operands are read. Tensor cores that read
  shared memory themselves (`ASYNCHRONOUS`) do so once.
- Steps finer than a library's cost what a step costs besides, its barrier.
- Blocks share no loads, and each fills its pipeline anew unless it stays
  (`persistent`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import attrs
import numpy as np

from perfc.costmodels.constants import constants
from perfc.costmodels.gemm.formula import shipped_machine
from perfc.costmodels.gemm.kernels import overlapped, work_of
from perfc.costmodels.gemm.machine import Machine, Size, mean_width
from perfc.costmodels.gemm.parameters import SIMT_MODES
from perfc.costmodels.gemm.tiles import ASYNCHRONOUS, Menu
from perfc.costmodels.kernels import FLOATS
from perfc.costmodels.machine import Target, blocks_per_sm

_CONSTANTS = constants("gemm")

_LOAD_CYCLES = _CONSTANTS.number("load_cycles")
"""Cycles of the SM clock from a load to its data, out of L2."""

_SHARED_BYTES_PER_CYCLE = _CONSTANTS.number("shared_bytes_per_cycle")
"""What an SM reads of its shared memory in a cycle."""

_STEP_CYCLES = _CONSTANTS.number("step_cycles")
"""What a step of the main loop costs besides its products."""

_USUAL_STEP_BYTES = _CONSTANTS.number("usual_step_bytes")
"""Bytes of an operand's row in a step of libraries' kernels, whose fitted parameters
hold what their steps cost."""

_RESERVED_BYTES = 1024
"""Shared memory that each block holds for the system, from compute capability 8.0 on
(CUDA C++ Programming Guide, "Shared Memory" of 8.x and 9.0)."""

_RESERVED_FROM = (8, 0)

_MOST_REGISTERS = 255
"""Registers of a thread, at most (ibid., technical specifications); where accumulators
need more, they spill to memory, which nobody wants."""

_MOST_THREADS = 1024
"""Threads of a block, at most (ibid.)."""

_IN_TENSOR_MEMORY = frozenset({"10.0", "10.3"})
"""Compute capabilities whose accumulators are in a memory of their own (PTX ISA,
"Tensor Memory")."""


class Tile(NamedTuple):
    """What one block of a kernel computes, and how.

    Attributes:
        rows: Rows of the result.
        columns: Columns of it.
        depth: How much of the summed dimension a step of the main loop covers.
        warps: Warps of a block.
        stages: Buffers in shared memory, each for the operands of a step.
        parts: Into how many parts the sum is cut, each a block of its own.
        persistent: Whether a block computes tile after tile.

    """

    rows: int
    columns: int
    depth: int
    warps: int = 4
    stages: int = 3
    parts: int = 1
    persistent: bool = False


def tile_second(
    size: Size[float], tile: Tile, target: Target, mode: str, *, own: int = 0
) -> float:
    """Return one GEMM's seconds by one tile; infinity where no SM can hold a block.

    What measured rows say of a GEMM as a whole (`residual`) is not in it: that is the
    same for all tiles.

    Args:
        size: The GEMM.
        tile: The tile.
        target: A GPU that has the math mode.
        mode: Math mode.
        own: Number of the kernels on tensor cores, of `TENSOR_KERNELS`.

    """
    width = mean_width(size)
    # How many blocks an SM holds at a time; 0 if it cannot hold one.
    held: int
    device = target.device
    threads = tile.warps * device.warp_size
    registers = math.ceil(tile.rows * tile.columns / threads)
    if device.compute_capability in _IN_TENSOR_MEMORY and mode not in SIMT_MODES:
        registers = 0
    shared = tile.stages * (tile.rows + tile.columns) * tile.depth * width
    # Whether blocks of a GPU hold shared memory for the system.
    major, _, minor = target.device.compute_capability.partition(".")
    shared += _RESERVED_BYTES * ((int(major), int(minor or 0)) >= _RESERVED_FROM)
    if (
        registers > _MOST_REGISTERS
        or threads > min(device.max_threads_per_sm, _MOST_THREADS)
        or shared > device.shared_memory_bytes_per_sm
    ):
        held = 0
    else:
        held = blocks_per_sm(device, threads, registers, math.ceil(shared))
    if not held:
        return math.inf
    kernel = target.once(_kernels)(tile, mode, own)
    step_s, write_s, moved_s, row_bytes, partial_s = work_of(size, kernel.machine)
    rates, split_s = kernel.machine.rates, kernel.machine.split_s
    tiles_m, tiles_n = math.ceil(size.m / tile.rows), math.ceil(size.n / tile.columns)
    tiles = size.batch * tiles_m * tiles_n
    per_sm = tiles * tile.parts * rates.per_sm
    steps = math.ceil(size.k / tile.parts / tile.depth)
    most = math.ceil(per_sm)
    outputs = kernel.outputs(most, held)
    each_s = steps * step_s * kernel.step + write_s
    compute_s = outputs * (each_s + rates.fill_s * (not tile.persistent))
    if tile.persistent:
        compute_s += rates.fill_s * min(kernel.full, outputs)
    rounds = math.ceil(most / held)
    finer = steps - size.k * width / (tile.parts * _USUAL_STEP_BYTES)
    compute_s += rounds * max(0.0, finer) * kernel.step_s
    memory_s = moved_s / min(1.0, per_sm * rates.per_stream)
    loads_s = tiles * row_bytes * kernel.load_s
    waits_s = rounds * steps * kernel.wait_s
    reads_s = most * steps * tile.depth * width * kernel.read_s
    if tile.stages == 1:
        compute_s += waits_s
    found = (compute_s, memory_s, max(loads_s, waits_s, reads_s))
    seconds = overlapped(found, kernel.machine, FLOATS) + kernel.machine.start_s
    if tile.parts > 1:
        seconds += split_s + partial_s * tile.parts
    return seconds


@attrs.frozen(eq=False)
class _Kernel:
    """A tile on a machine.

    Attributes:
        machine: The machine, with that tile alone.
        at_once: Tiles that fill an SM.
        full: Their outputs.
        steepness: Exponent of what is missing where few tiles fill it.
        step: Time of a step of an output, over that at the sheet's rate.
        load_s: Time to load the operands of one byte of depth from L2.
        wait_s: Least time of a step, whose operands are on their way.
        read_s: Time to read the operands of one byte of depth from shared memory.
        step_s: What a step costs besides.

    """

    machine: Machine
    at_once: float
    full: float
    steepness: float
    step: float
    load_s: float
    wait_s: float
    read_s: float
    step_s: float

    def outputs(self, tiles: int, held: int) -> float:
        """Return the outputs that count for tiles of an SM, *held* at a time."""
        together = min(self.at_once, held)
        rounds, rest = divmod(tiles, together)
        return self.full * (rounds * self._share(together) + self._share(rest))

    def _share(self, tiles: float) -> float:
        empty = max(0.0, 1.0 - tiles / self.at_once)
        return 1.0 - FLOATS.power(empty, self.steepness)


def _kernels(target: Target) -> Callable[[Tile, str, int], _Kernel]:
    """Return a function that has the kernels of tiles; see `Target.once`."""
    known: dict[tuple[Tile, str, int], _Kernel] = {}

    def kernel_of(tile: Tile, mode: str, own: int) -> _Kernel:
        key = tile, mode, own
        if key not in known:
            known[key] = _kernel(tile, target, mode, own)
        return known[key]

    return kernel_of


def _kernel(tile: Tile, target: Target, mode: str, own: int) -> _Kernel:
    device = target.device
    base, warp = shipped_machine(target, mode, own), float(device.warp_size)
    rows, columns = np.array([[float(tile.rows)]]), np.array([[float(tile.columns)]])
    menu = Menu(
        rows,
        columns,
        rows * columns,
        (rows + columns) / (rows * columns),
        stages_again=not tile.persistent,
        threads=np.array([[tile.warps * warp]]) if mode in SIMT_MODES else None,
    )
    parameters = attrs.evolve(base.parameters, k_step=float(tile.depth))
    machine = attrs.evolve(base, menu=menu, parameters=parameters)
    choices = machine.choices
    cycle_s = 1 / device.sm_clock_hz
    read = 0.0
    if mode not in SIMT_MODES and device.compute_capability not in ASYNCHRONOUS:
        read = _read_again(tile) * cycle_s / _SHARED_BYTES_PER_CYCLE
    return _Kernel(
        machine,
        choices.at_once.item(),
        choices.full.item(),
        choices.steepness.item(),
        choices.step.item(),
        choices.loads_s.item(),
        _LOAD_CYCLES * cycle_s / max(1, tile.stages - 1),
        read,
        _STEP_CYCLES * cycle_s,
    )


def _read_again(tile: Tile) -> float:
    """Return the rows and columns that all warps of a tile read of a step together.

    Warps share a tile in halves of its longer side.
    """
    rows, columns, left = float(tile.rows), float(tile.columns), tile.warps
    while left > 1:
        if rows >= columns:
            rows /= 2
        else:
            columns /= 2
        left //= 2
    return tile.warps * (rows + columns)
