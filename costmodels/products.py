"""Matrix products: tiles, waves, split-K, and the bytes they move.

A library picks one kernel of a small menu; the model takes the menu's best:

    t = floor + start + min over tiles and splits of |(c, m, l)| + cost of the split
    c = rounds * (2 tile_m tile_n k_split / (rate of an SM * e(tile)) + fill)
    m = bytes / (memory rate * share), or L2's for what L2 still holds
    l = bytes that the tiles load / (L2 rate * share)

`|.|` is the 4-norm: the longest, and a little of the others. The tiles of one SM run
side by side: `rounds` counts full SMs, and an SM that is partly full runs at part of
its rate. `e` grows with the flops that a tile does per byte it loads. A large product
slows down with time where the board's power does not suffice. Everything else comes
from the target's sheet; parameters are in `fitted/gemm.toml`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.fitted_file import fitted
from perfc.costmodels.protocol import Floats
from perfc.costmodels.target import Target

_Tiles = tuple[tuple[int, int], ...]

SIMT_TILES: _Tiles = (
    (32, 32),
    (32, 64),
    (128, 32),
    (32, 128),
    (64, 64),
    (64, 128),
    (128, 128),
)
"""Tile sizes (rows, columns of a row-major result) without tensor cores.

cuBLAS kernels are named for them, in its columns: `sgemm_128x64` is 64 x 128 here.
"""

SLICES: Mapping[tuple[int, int], int] = MappingProxyType({(32, 32): 4, (32, 64): 4})
"""Parts that the threads of one tile cut the summed dimension into (`sliced1x4`)."""

TENSOR_TILES: _Tiles = (
    (16, 64),
    (64, 16),
    (64, 32),
    (32, 128),
    (64, 64),
    (128, 64),
    (64, 128),
    (128, 128),
    (64, 256),
    (128, 256),
    (256, 128),
)
"""The same on tensor cores."""

BATCHED_TILES: Mapping[str, _Tiles] = MappingProxyType(
    {
        "Pascal": ((64, 128),),
        "Volta": ((64, 64), (128, 32), (32, 128)),
        "Turing": ((64, 64), (64, 128), (128, 32), (32, 128)),
        "Ampere": ((128, 128),),
        "Ada Lovelace": ((128, 128),),
    }
)
"""Tiles that cuBLAS 12 takes for batched products without tensor cores; any elsewhere.

From the names of the kernels in NeuSight's measurements; Ada's from the same library.
"""

TRANSPOSED_TILES: Mapping[str, _Tiles] = MappingProxyType(
    {
        "Pascal": ((32, 128), (128, 32), (64, 64)),
        "Ampere": ((32, 32), (32, 64), (128, 32), (32, 128), (64, 128)),
        "Ada Lovelace": ((32, 32), (32, 64), (128, 32), (32, 128), (64, 128)),
    }
)
"""The same of single products with one operand transposed, as a linear layer's weight.
"""

SIMT_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
TENSOR_SPLITS = (1, 2, 4, 8, 16)
"""Into how many parts the summed dimension may be cut (batched SIMT: none)."""

CHUNK = 256
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

RELATIVES: Mapping[str, str] = MappingProxyType(
    {
        "Volta": "Ampere",
        "Turing": "Ampere",
        "Blackwell": "Hopper",
    }
)
"""Whose parameters on tensor cores an architecture takes that was not measured: of the
one next to it with kernels of the same kind."""

_SMALL_L2_BYTES = 8 << 20
"""L2 below which narrow reads of rows evict one another (V100, T4, Pascal)."""

_WIDEST_LOADS = (128 + 256) / (128 * 256)
_FULL_TILE = 128 * 128
_PARTIAL_BYTES = 8
"""A part of a split sum is written and read in fp32."""
_WARM_STEEPNESS = 8
_SHORT_S, _DECADES = 1e-4, 2.0
"""Products shorter than this run at the boost clock; after so many decades the clock
is what the board sustains."""


@attrs.frozen(kw_only=True)
class GemmParameters:
    """What the sheets do not say."""

    tile_efficiency: float
    """Share of the peak that an endless product reaches with 128 x 256 tiles."""
    tile_half: float
    """Tile intensity, m n / (m + n), at which half as much is reached as without
    loads."""
    full_outputs: float
    """Outputs of the tiles that an SM needs for its full rate."""
    fill_s: float
    """Start and end of `full_outputs` of tiles."""
    epilogue: float
    """Share of the time to write them that nothing hides."""
    memory_efficiency: float
    """Share of the sheet's memory rate."""
    rereads: float
    """How often small L2s lose the rows of a batched product's first operand."""
    l2_efficiency: float
    """Share of the sheet's L2 rate."""
    streams_per_sm: float
    """Tiles per SM from which on the memory rate is reached."""
    sharers: float
    """Operands as large as these that pass through L2 before these are read again."""
    start_s: float
    """Added to the target's kernel floor."""
    split_s: float
    """The second kernel of a split, or its last block's work."""
    k_step: int
    """Depth of one step of the main loop."""
    power_exponent: float
    """How the rate falls where the board's power does not suffice; 0: not."""
    short_power: float
    """Share of that exponent for short products."""
    sustained: float
    """Share of the boost rate that long products keep on any board."""
    sigma_shared: float
    """Of the logarithm, on GPUs of the same architecture."""
    sigma_independent: float
    """Scatter within a GPU on held-out rows."""


SIMT_MODES = frozenset({"fp64", "fp32", "fp16_vector", "bf16_vector"})
"""Math modes without tensor cores."""

SIMT_FITTED_ON = frozenset({"6.0", "7.0", "7.5", "8.0"})
"""Compute capabilities of the GPUs that the SIMT parameters are fitted on."""

TENSOR_FITTED_ON = frozenset({"8.0", "8.9", "9.0"})
"""The same of tensor cores."""


@functools.cache
def simt_parameters() -> GemmParameters:
    """Return the parameters without tensor cores, shared by all GPUs."""
    return GemmParameters(**fitted("gemm")["simt"])


@functools.cache
def tensor_parameters(architecture: str) -> GemmParameters:
    """Return the parameters on tensor cores of an architecture, or of its relative."""
    known = fitted("gemm")["tensor"]
    name = RELATIVES.get(architecture, architecture)
    return GemmParameters(**known.get(name, known["Hopper"]))


@attrs.frozen(eq=False)
class Products:
    """Sizes of matrix products C[b,m,n] = A[b,m,k] B[b,k,n], one per row.

    Attributes:
        sizes: Columns b, m, n, k.
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
        """Return some of the rows."""
        return Products(
            self.sizes[rows], self.bytes[rows], self.peak[rows], self.transposed[rows]
        )


@attrs.frozen(eq=False)
class _Menu:
    """Kernels to choose from; arrays of shape (1, kernels)."""

    tile_m: Floats
    tile_n: Floats
    split: Floats
    at_once: Floats
    """Outputs that a tile counts for among those that fill an SM."""

    @functools.cached_property
    def area(self) -> Floats:
        return self.tile_m * self.tile_n

    @functools.cached_property
    def loads(self) -> Floats:
        return (self.tile_m + self.tile_n) / self.area

    @functools.cached_property
    def is_split(self) -> Floats:
        return (self.split > 1).astype(np.float64)


@functools.cache
def _menu(tiles: _Tiles, splits: tuple[int, ...], *, simt: bool = True) -> _Menu:
    kernels = [
        (m, n, s, m * n * (SLICES.get((m, n), 1) if simt else 1))
        for m, n in tiles
        for s in splits
    ]
    return _Menu(*np.array(kernels, dtype=np.float64).T[:, np.newaxis, :])


def simt_seconds(products: Products, target: Target, p: GemmParameters) -> Floats:
    """Return the duration of products without tensor cores, in seconds.

    A product with a vector is a kernel of its own, which reads the matrix once.
    """
    architecture = target.device.architecture
    several = products.sizes[:, 0] > 1
    single = TRANSPOSED_TILES.get(architecture, SIMT_TILES)
    batched = BATCHED_TILES.get(architecture, SIMT_TILES)
    # Of transposed batches there are no rows; traces of V100 have small kernels.
    turned = SIMT_TILES if architecture in {"Volta", "Turing"} else batched
    menus = (
        (several & products.transposed, _menu(turned, (1,))),
        (several & ~products.transposed, _menu(batched, (1,))),
        (~several & products.transposed, _menu(single, SIMT_SPLITS)),
        (~several & ~products.transposed, _menu(SIMT_TILES, SIMT_SPLITS)),
    )
    seconds = np.empty(len(products))
    for rows, menu in menus:
        if rows.any():
            seconds[rows] = _seconds(products.part(rows), target, p, menu)
    vectors = products.sizes[:, 1:3].min(axis=1) == 1
    if vectors.any():
        streamed_s = _moved_seconds(products, target, p) + target.device.kernel_floor_s
        streamed_s += p.start_s
        seconds[vectors] = np.minimum(seconds, streamed_s)[vectors]
    return seconds


def tensor_seconds(products: Products, target: Target, p: GemmParameters) -> Floats:
    """Return the duration of products on tensor cores, in seconds."""
    return _seconds(products, target, p, _menu(TENSOR_TILES, TENSOR_SPLITS, simt=False))


def _seconds(
    products: Products, target: Target, p: GemmParameters, menu: _Menu
) -> Floats:
    if len(products) <= CHUNK:
        return _chunk_seconds(products, target, p, menu)
    parts = [
        _chunk_seconds(products.part(slice(at, at + CHUNK)), target, p, menu)
        for at in range(0, len(products), CHUNK)
    ]
    return np.concatenate(parts)


def _chunk_seconds(
    products: Products, target: Target, p: GemmParameters, menu: _Menu
) -> Floats:
    device = target.device
    batch, m, n, k = (column[:, np.newaxis] for column in products.sizes.T)
    tiles = batch * np.ceil(m / menu.tile_m) * np.ceil(n / menu.tile_n)
    depth = np.ceil(k * (1 / (menu.split * p.k_step))) * p.k_step
    per_sm = tiles * menu.split * (1 / device.sm_count)

    outputs = _rounds(np.ceil(per_sm), menu, p.full_outputs)
    slowdown = (1 + p.tile_half * menu.loads) / (1 + p.tile_half * _WIDEST_LOADS)
    sm_rate = products.peak[:, np.newaxis] * (p.tile_efficiency / device.sm_count)
    compute_s = outputs * depth * (2 * slowdown) / sm_rate
    operands = batch * (m * k + k * n + m * n)
    width = products.bytes[:, np.newaxis] / operands
    memory_rate = device.memory.bytes_per_s * p.memory_efficiency
    write_s = (p.epilogue * device.sm_count / memory_rate) * width
    compute_s += outputs * (p.fill_s / p.full_outputs + write_s)

    l2_rate = device.l2.bytes_per_s * p.l2_efficiency
    loads_s = tiles * menu.area * menu.loads * k * (width / l2_rate)
    streams = np.minimum(1.0, per_sm * (1 / p.streams_per_sm))
    memory_s = _moved_seconds(products, target, p)[:, np.newaxis] / streams
    parts_s = batch * m * n * (menu.is_split * menu.split) * (_PARTIAL_BYTES / l2_rate)
    memory_s = memory_s + parts_s
    total_s = np.maximum(np.maximum(compute_s, memory_s), loads_s)
    total_s += menu.is_split * p.split_s
    best = total_s.argmin(axis=1)
    at = (np.arange(len(best)), best)
    slow_s = _slowed(compute_s[at], target, p)
    start_s = device.kernel_floor_s + p.start_s + menu.is_split[0, best] * p.split_s
    found: Floats = _norm(slow_s, memory_s[at], loads_s[at]) + start_s
    return found


def _rounds(tiles: Floats, menu: _Menu, full_outputs: float) -> Floats:
    """Return the outputs that *tiles* on one SM take the time of at its full rate.

    An SM with a quarter of the tiles that fill it takes more than a quarter of the time
    of a full one: 0.58, measured with 64 x 64 tiles on V100.
    """
    at_once = np.maximum(1.0, full_outputs / menu.at_once)
    rounds = tiles / at_once
    whole = np.floor(rounds)
    empty = 1 - (rounds - whole)
    return (whole + 1 - empty * empty * empty) * (at_once * menu.area)


def _norm(*overlapping_s: Floats) -> Floats:
    """Return the 4-norm: overlapping work takes the longest, and a little more."""
    found: Floats = np.sqrt(
        np.sqrt(sum(np.square(np.square(s)) for s in overlapping_s))
    )
    return found


def _moved_seconds(products: Products, target: Target, p: GemmParameters) -> Floats:
    device = target.device
    memory_rate = device.memory.bytes_per_s * p.memory_efficiency
    l2_rate = max(device.l2.bytes_per_s * p.l2_efficiency, memory_rate)
    moved = products.bytes
    others = (moved * (p.sharers / device.l2.capacity_bytes)) ** _WARM_STEEPNESS
    cold = others / (1 + others)
    if p.rereads and device.l2.capacity_bytes < _SMALL_L2_BYTES:
        batch, m, n, k = products.sizes.T
        width = moved / (batch * (m * k + k * n + m * n))
        moved = moved + (batch > 1) * (p.rereads * batch * m * k * width)
    return moved * (cold / memory_rate + (1 - cold) / l2_rate)


def _slowed(compute_s: Floats, target: Target, p: GemmParameters) -> Floats:
    """Return how long computing takes at the clock that the board's power allows."""
    power = _power_share(target, p.power_exponent)
    if power == p.sustained == 1:
        return compute_s
    short = power**p.short_power
    decades = np.log10(np.maximum(compute_s, _SHORT_S) / _SHORT_S)
    late = np.minimum(decades / _DECADES, 1.0)
    slowed_s: Floats = compute_s / (short * (power * p.sustained / short) ** late)
    return slowed_s


def _power_share(target: Target, exponent: float) -> float:
    """Return the share of the peak that the board's power sustains."""
    natural = NATURAL_WATTS_PER_TFLOPS.get(target.device.architecture)
    if natural is None or exponent == 0:
        return 1.0
    full_watts = natural * target.device.flops_per_s["fp32"] * 1e-12
    return float(min(1.0, target.watts / full_watts) ** exponent)
