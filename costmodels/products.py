"""Matrix products: tiles, waves, split-K, and the bytes they move.

A library picks one kernel of a small menu; the model takes the menu's best:

    t = floor + start + min over tiles, split or not, of |(c, m, l)| + cost of the split
    c = rounds * (2 tile_m tile_n k_split / (rate of an SM * e(tile)) + fill)
    m = bytes / (memory rate * share), or L2's for what L2 still holds
    l = bytes that the tiles load / (L2 rate * share)

`|.|` is a norm: the longest, and a little of the others. The tiles of one SM run
side by side: `rounds` counts full SMs, and an SM that is partly full runs at part of
its rate. A split cuts the summed dimension into as many parts as fill the SMs. `e`
grows with the flops that a tile does per byte it loads. A large product slows down with
time where the board's power does not suffice. Everything else comes from the target's
sheet; parameters are in `fitted/gemm.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.memory import L2_PARTITIONS, SHARERS
from perfc.costmodels.product_parameters import GemmParameters
from perfc.costmodels.product_tiles import (
    BATCHED_TILES,
    SIMT_TILES,
    TRANSPOSED_TILES,
    Menu,
    simt_menu,
    tensor_menu,
)
from perfc.costmodels.protocol import Floats
from perfc.costmodels.target import Target

CHUNK = 1024
"""Rows priced at a time: the arrays of candidates then stay in a CPU's cache."""

NATURAL_WATTS_PER_TFLOPS: Mapping[str, float] = MappingProxyType(
    {
        "Pascal": 20.0,
        "Volta": 20.0,
        "Turing": 20.0,
        "Ampere": 11.0,
        "Ada Lovelace": 6.9,
        "Hopper": 6.9,
        "Blackwell": 6.9,
    }
)
"""Power that fp32 FMAs at the boost clock need, by process (16/12, 7, 5/4 nm).

A board that allows less, as T4 or L4, clocks down under large products.
"""

TYPICAL_BASE_SHARE = 0.75
"""Of the boost clock that is guaranteed, where the maker publishes no base clock."""

_MOST_PARTS = 32
_LEAST_DEPTH = 64
"""Of a split: how many parts, how deep each."""

_SMALL_L2_BYTES = 8 << 20
"""L2 below which narrow reads of rows evict one another (V100, T4, Pascal)."""

_WIDEST_LOADS = (128 + 256) / (128 * 256)
_PARTIAL_BYTES = 8
"""A part of a split sum is written and read in fp32."""
_WARM_STEEPNESS = 8
_SHORT_S, _DECADES = 1e-4, 2.0
"""Products shorter than this run at the boost clock; after so many decades the clock
is what the board sustains."""


@attrs.frozen(eq=False)
class Products:
    """Sizes of matrix products C[b,m,n] = A[b,m,k] B[b,k,n], one per row.

    Attributes:
        sizes: Rows b, m, n, k; shape (4, products).
        bytes: Bytes that must move.
        peak: FLOP/s.
        transposed: Whether one operand is stored transposed.

    """

    sizes: Floats
    bytes: Floats
    peak: Floats
    transposed: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.bytes)

    def part(self, rows: slice | NDArray[np.bool_] | NDArray[np.intp]) -> Products:
        """Return some of the products."""
        return Products(
            self.sizes[:, rows],
            self.bytes[rows],
            self.peak[rows],
            self.transposed[rows],
        )


@attrs.frozen(eq=False)
class _Machine:
    """What a target and some parameters come to."""

    target: Target
    parameters: GemmParameters
    menu: Menu
    boost: float
    """Rate of a short product over that of the sheet, whose clock is lower."""
    short: float
    """Share of it that a short product reaches on this board."""
    late: float
    """The same of a long one, over `short`."""

    @property
    def sm_count(self) -> int:
        return self.target.device.sm_count

    @property
    def memory_rate(self) -> float:
        return self.target.device.memory.bytes_per_s * self.parameters.memory_efficiency

    @property
    def l2_rate(self) -> float:
        return self.target.device.l2.bytes_per_s * self.parameters.l2_efficiency

    def seconds_of(self, cycles: float) -> float:
        return cycles / self.target.device.sm_clock_hz

    @property
    def start_s(self) -> float:
        """What passes in any kernel."""
        own_s = self.seconds_of(self.parameters.start_cycles)
        return self.target.device.kernel_floor_s + own_s


@attrs.frozen(eq=False)
class _Candidates:
    """One way to compute each product with each tile; shape (kernels, rows)."""

    compute_s: Floats
    memory_s: Floats
    loads_s: Floats


def simt_seconds(products: Products, target: Target, p: GemmParameters) -> Floats:
    """Return the duration of products without tensor cores, in seconds.

    A product with a vector is a kernel of its own, which reads the matrix once.
    """
    architecture = target.device.architecture
    several = products.sizes[0] > 1
    single = TRANSPOSED_TILES.get(architecture, SIMT_TILES)
    batched = BATCHED_TILES.get(architecture, SIMT_TILES)
    # Of transposed batches there are no rows; traces of V100 have small kernels.
    turned = SIMT_TILES if architecture in {"Volta", "Turing"} else batched
    menus = (
        (several & products.transposed, turned),
        (several & ~products.transposed, batched),
        (~several & products.transposed, single),
        (~several & ~products.transposed, SIMT_TILES),
    )
    power = _fma_power(target) ** p.power_exponent
    short = power**p.short_power
    seconds = np.empty(len(products))
    for rows, tiles in menus:
        if not rows.any():
            continue
        machine = _Machine(target, p, simt_menu(tiles), 1.0, short, power / short)
        part = products if rows.all() else products.part(rows)
        seconds[rows] = _seconds(part, machine, splits=not part.sizes[0, 0] > 1)
    vectors = (products.sizes[1] == 1) | (products.sizes[2] == 1)
    if vectors.any():
        machine = _Machine(target, p, simt_menu(SIMT_TILES), 1.0, short, power / short)
        streamed_s = _moved_seconds(products, machine) + machine.start_s
        seconds[vectors] = np.minimum(seconds, streamed_s)[vectors]
    return seconds


def tensor_seconds(products: Products, target: Target, p: GemmParameters) -> Floats:
    """Return the duration of products on tensor cores, in seconds."""
    device = target.device
    boost = device.sm_clock_hz / device.tensor_clock_hz
    power = _base_share(target) ** p.power_exponent
    short = power**p.short_power
    late = min(power, short * device.tensor_clock_hz / device.sm_clock_hz)
    menu = tensor_menu(device.compute_capability)
    machine = _Machine(target, p, menu, boost, short, late / short)
    return _seconds(products, machine, splits=True)


def _seconds(products: Products, machine: _Machine, *, splits: bool) -> Floats:
    if len(products) <= CHUNK:
        return _chunk_seconds(products, machine, splits=splits)
    parts = [
        _chunk_seconds(products.part(slice(at, at + CHUNK)), machine, splits=splits)
        for at in range(0, len(products), CHUNK)
    ]
    return np.concatenate(parts)


def _chunk_seconds(products: Products, machine: _Machine, *, splits: bool) -> Floats:
    batch, m, n, _ = products.sizes
    menu = machine.menu
    tiles = np.ceil(m * menu.per_row) * np.ceil(n * menu.per_column) * batch
    whole = _candidates(products, tiles, None, machine)
    total_s, slow_s = _best(whole, machine, 0.0)
    if splits:
        parts = _parts(products, tiles, machine)
        rows = np.flatnonzero(parts.max(axis=0) > 1)
        if len(rows):
            some = products if len(rows) == len(products) else products.part(rows)
            cut = _candidates(some, tiles[:, rows], parts[:, rows], machine)
            split_s = machine.seconds_of(machine.parameters.split_cycles)
            cut_s, cut_slow_s = _best(cut, machine, split_s)
            better = cut_s < total_s[rows]
            slow_s[rows[better]] = cut_slow_s[better]
    return slow_s + machine.start_s


def _parts(products: Products, tiles: Floats, machine: _Machine) -> Floats:
    """Return into how many parts a split cuts the sum: as many as fill the SMs."""
    at_once = np.maximum(1.0, machine.parameters.full_outputs / machine.menu.slots)
    wanted = np.floor(at_once * machine.sm_count / tiles)
    most = np.minimum(_MOST_PARTS, np.floor(products.sizes[3] * (1 / _LEAST_DEPTH)))
    parts: Floats = np.maximum(np.minimum(wanted, most), 1.0)
    return parts


def _candidates(
    products: Products, tiles: Floats, parts: Floats | None, machine: _Machine
) -> _Candidates:
    """Return what each tile of the menu takes, the sum in one part or in several."""
    menu, p = machine.menu, machine.parameters
    batch, m, n, k = products.sizes
    width = products.bytes / (batch * (m * k + k * n + m * n))
    blocks = tiles if parts is None else tiles * parts
    per_sm = blocks * (1 / machine.sm_count)

    at_once = np.maximum(1.0, p.full_outputs / menu.slots)
    outputs = _rounds(np.ceil(per_sm), at_once) * (at_once * menu.area)
    slowdown = (1 + p.tile_half * menu.intensity) / (1 + p.tile_half * _WIDEST_LOADS)
    sm_rate = p.tile_efficiency * machine.boost / machine.sm_count
    depth = k if parts is None else k / parts
    steps = np.ceil(depth * (1 / p.k_step)) * (p.k_step / products.peak)
    write_s = width * (p.epilogue * machine.sm_count / machine.memory_rate)
    fill_s = machine.seconds_of(p.fill_cycles) / p.full_outputs
    each_s = steps * (2 * slowdown / sm_rate) + write_s
    if menu.stages_again:
        compute_s = outputs * (each_s + fill_s)
    else:
        compute_s = outputs * each_s
        compute_s += fill_s * np.minimum(outputs, at_once * menu.area)

    streams = np.minimum(1.0, per_sm * (1 / p.streams_per_sm))
    memory_s = _moved_seconds(products, machine) / streams
    if parts is not None:
        partial_s = batch * m * n * (_PARTIAL_BYTES / machine.l2_rate)
        memory_s += partial_s * np.where(parts > 1, parts, 0.0)
    loads_s = tiles * (k * width * (1 / machine.l2_rate)) * (menu.area * menu.loads)
    return _Candidates(compute_s, memory_s, loads_s)


def _best(
    found: _Candidates, machine: _Machine, extra_s: float
) -> tuple[Floats, Floats]:
    """Return the least time of each product, as it is chosen and as it runs."""
    total_s = np.maximum(np.maximum(found.compute_s, found.memory_s), found.loads_s)
    best = total_s.argmin(axis=0)
    at = (best, np.arange(len(best)))
    compute_s = _slowed(found.compute_s[at], machine)
    power = machine.parameters.overlap
    sums = compute_s**power + found.memory_s[at] ** power + found.loads_s[at] ** power
    return total_s[at] + extra_s, sums ** (1 / power) + extra_s


def _rounds(tiles: Floats, at_once: Floats) -> Floats:
    """Return how many times as long as a full SM one with so many tiles takes.

    An SM with a quarter of the tiles that fill it takes more than a quarter of the time
    of a full one: 0.58, measured with 64 x 64 tiles on V100.
    """
    rounds = tiles * (1 / at_once)
    whole = np.floor(rounds)
    whole += 1
    empty = whole - rounds
    whole -= empty * empty * empty
    return whole


def _moved_seconds(products: Products, machine: _Machine) -> Floats:
    """Return the time of the bytes that must move, from memory or what L2 still holds.

    In what repeats, as many kernels' operands as `SHARERS` pass through L2 in between.
    """
    device, p = machine.target.device, machine.parameters
    l2_rate = max(machine.l2_rate, machine.memory_rate)
    moved = products.bytes
    copies = L2_PARTITIONS.get(device.compute_capability, 1)
    others = moved * (SHARERS * copies / device.l2.capacity_bytes)
    others = others**_WARM_STEEPNESS
    cold = others / (1 + others)
    if p.rereads and device.l2.capacity_bytes < _SMALL_L2_BYTES:
        batch, m, n, k = products.sizes
        width = moved / (batch * (m * k + k * n + m * n))
        moved = moved + (batch > 1) * (p.rereads * batch * m * k * width)
    rate: Floats = cold * (1 / machine.memory_rate - 1 / l2_rate) + 1 / l2_rate
    return moved * rate


def _slowed(compute_s: Floats, machine: _Machine) -> Floats:
    """Return how long computing takes at the clock that the board's power allows."""
    if machine.short == machine.late == 1:
        return compute_s
    decades = np.log10(np.maximum(compute_s, _SHORT_S) * (1 / _SHORT_S))
    share = np.minimum(decades * (1 / _DECADES), 1.0)
    slowed_s: Floats = compute_s / (machine.short * machine.late**share)
    return slowed_s


def _fma_power(target: Target) -> float:
    """Return the share of the power of fp32 FMAs that the board allows."""
    natural = NATURAL_WATTS_PER_TFLOPS.get(target.device.architecture)
    if natural is None:
        return 1.0
    full_watts = natural * target.device.flops_per_s["fp32"] * 1e-12
    return float(min(1.0, target.watts / full_watts))


def _base_share(target: Target) -> float:
    """Return the base clock over the boost clock: what the board's power sustains."""
    device = target.device
    if device.base_clock_hz is None:
        return TYPICAL_BASE_SHARE
    return device.base_clock_hz / device.sm_clock_hz
