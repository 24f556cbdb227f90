"""Matrix products: tiles, waves, split-K, and the bytes they move.

A library picks one kernel of a small menu; the model takes the menu's best:

    t = floor + start + min over tiles and splits of
            max(c, m) + overlap * min(c, m) + cost of the split
    c = waves * (2 tile_m tile_n k_split / (rate of an SM * e(tile)) + fill)
    m = bytes / (memory or L2 rate * share)

`waves` lies between the fractional and the whole number of rounds that the
tiles need on the SMs, and `e` grows with the flops that a tile does per byte it
loads. Everything else comes from the target's sheet.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.memory import cached_share
from perfc.costmodels.protocol import Floats
from perfc.costmodels.target import Target

TILES: tuple[tuple[int, int], ...] = (
    (32, 32),
    (32, 128),
    (128, 32),
    (64, 64),
    (64, 128),
    (128, 64),
    (128, 128),
    (128, 256),
    (256, 128),
)
"""Tile sizes (rows, columns) of the output; cuBLAS kernels are named for them."""

SPLITS: tuple[int, ...] = (1, 2, 4, 8, 16)
"""Into how many parts the summed dimension may be cut (batched SIMT: none)."""

_Tiles = tuple[tuple[int, int], ...]

BATCHED_TILES: Mapping[str, _Tiles] = MappingProxyType(
    {
        "Ampere": ((128, 128),),
        "Ada Lovelace": ((128, 128),),
        "Pascal": ((64, 128), (128, 64)),
    }
)
"""Tiles that cuBLAS takes for batched products without tensor cores.

From the names of the kernels in NeuSight's measurements; any tile elsewhere.
"""

TRANSPOSED_TILES: Mapping[str, _Tiles] = MappingProxyType(
    {"Pascal": ((32, 128), (128, 32), (64, 64))}
)
"""Tiles where one operand is stored transposed, as a linear layer's weight."""

CHUNK = 512
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


@attrs.frozen(kw_only=True)
class GemmParameters:
    """What the sheets do not say, shared by all GPUs."""

    tile_efficiency: float
    """Share of the peak that an endless product reaches with endless tiles."""
    tile_half: float
    """Tile intensity, m n / (m + n), at which half of that is reached."""
    fill_s: float
    """Start and end of one 128 x 128 tile; goes with the root of the area."""
    quantised: float
    """0: waves are fractional; 1: whole."""
    overlap: float
    """Share of the shorter of computing and moving that is not hidden."""
    memory_efficiency: float
    """Share of the sheet's memory rate."""
    l2_efficiency: float
    """Share of the sheet's L2 rate."""
    streams_per_sm: float
    """Tiles per SM from which on the memory rate is reached."""
    k_step: int
    """Depth of one step of the main loop."""
    start_s: float
    """Added to the target's kernel floor."""
    split_s: float
    """The second kernel of a split, or its last block's work."""
    power_exponent: float
    """How the rate falls where the board's power does not suffice; 0: not."""
    sigma_shared: float
    """Of the logarithm: between the mean errors on held-out rows and on GPUs
    left out of the fit."""
    sigma_independent: float
    """Scatter within a GPU on held-out rows."""
    fitted_on: frozenset[str]
    """Compute capabilities of the GPUs in the fit (`benchmarks/fit_kernels.py`)."""


SIMT = GemmParameters(
    tile_efficiency=1.13,
    tile_half=15.5,
    fill_s=1.0e-6,
    quantised=0.77,
    overlap=0.01,
    memory_efficiency=0.48,
    l2_efficiency=0.3,
    streams_per_sm=1.0,
    k_step=8,
    start_s=0.3e-6,
    split_s=3e-6,
    power_exponent=0.84,
    sigma_shared=0.15,
    sigma_independent=0.24,
    fitted_on=frozenset({"6.0", "7.0", "7.5", "8.0"}),
)
"""FMAs without tensor cores.

Fitted by `benchmarks/fit_kernels.py`, 2026-11, on half of NeuSight's fp32 rows
(MIT; torch 2.1, cuBLAS 12.1) of P100, V100, T4 and A100. Those rows are event
pairs around one call, of which only the long ones can be used. They say nothing
of `fill_s`, `l2_efficiency`, `start_s` and `split_s`, which are round numbers
near the tensor cores' that GEMM kernels in traces of V100 do not contradict.
"""

TENSOR = GemmParameters(
    tile_efficiency=1.01,
    tile_half=20.2,
    fill_s=0.61e-6,
    quantised=0.17,
    overlap=0.37,
    memory_efficiency=0.865,
    l2_efficiency=0.325,
    streams_per_sm=0.81,
    k_step=32,
    start_s=0.43e-6,
    split_s=2.5e-6,
    power_exponent=0.0,
    sigma_shared=0.11,
    sigma_independent=0.19,
    fitted_on=frozenset({"8.0", "8.9", "9.0"}),
)
"""Tensor cores.

Fitted by `benchmarks/fit_kernels.py`, 2026-11, on half of aiconfigurator's bf16
rows (Apache-2.0; CUDA graphs, operand sets in rotation) of A100, H100 and L40S.
"""

SIMT_MODES = frozenset({"fp64", "fp32", "fp16_vector", "bf16_vector"})
"""Math modes without tensor cores."""


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


def _candidates() -> Floats:
    menu = [(m, n, s) for m, n in TILES for s in SPLITS]
    return np.array(menu, dtype=np.float64).T[:, np.newaxis, :]


_TILE_M, _TILE_N, _SPLIT = _candidates()
_AREA = _TILE_M * _TILE_N
_LOADS_PER_FLOP = (_TILE_M + _TILE_N) / _AREA
_FULL_TILE = 128 * 128
_PARTIAL_BYTES = 8
"""A part of a split sum is written and read in fp32."""


def product_seconds(
    products: Products, target: Target, parameters: GemmParameters
) -> Floats:
    """Return the duration of each product on an idle GPU, in seconds."""
    if len(products) <= CHUNK:
        return _chunk_seconds(products, target, parameters)
    parts = [
        _chunk_seconds(products.part(slice(at, at + CHUNK)), target, parameters)
        for at in range(0, len(products), CHUNK)
    ]
    return np.concatenate(parts)


def _chunk_seconds(products: Products, target: Target, p: GemmParameters) -> Floats:
    sms = target.device.sm_count
    batch, m, n, k = (column[:, np.newaxis] for column in products.sizes.T)
    blocks = batch * np.ceil(m / _TILE_M) * np.ceil(n / _TILE_N)
    per_sm = blocks * (_SPLIT / sms)

    waves = p.quantised * np.ceil(per_sm) + (1 - p.quantised) * np.maximum(per_sm, 1)
    depth = np.ceil(k * (1 / (_SPLIT * p.k_step))) * p.k_step
    slowdown = (1 + p.tile_half * _LOADS_PER_FLOP) / p.tile_efficiency
    sm_rate = products.peak[:, np.newaxis] * (_power_share(target, p) / sms)
    fill_s = p.fill_s * np.sqrt(_AREA / _FULL_TILE)
    compute_s = waves * (depth * (2 * _AREA * slowdown) / sm_rate + fill_s)

    streams = np.minimum(1.0, per_sm / p.streams_per_sm)
    memory_s = _moved_seconds(products.bytes, target, p)[:, np.newaxis] / streams
    total_s = np.maximum(compute_s, memory_s)
    total_s += p.overlap * np.minimum(compute_s, memory_s)
    memory_rate = target.device.memory.bytes_per_s * p.memory_efficiency
    split_each_s = (_SPLIT > 1) * _SPLIT * (_PARTIAL_BYTES / memory_rate)
    total_s += batch * m * n * split_each_s + (_SPLIT > 1) * p.split_s
    if p is not TENSOR:
        _bar(total_s, products, target.device.architecture)
    best: Floats = total_s.min(axis=1)
    return best + (target.device.kernel_floor_s + p.start_s)


def _moved_seconds(moved: Floats, target: Target, p: GemmParameters) -> Floats:
    memory_rate = target.device.memory.bytes_per_s * p.memory_efficiency
    l2_rate = max(target.device.l2.bytes_per_s * p.l2_efficiency, memory_rate)
    cached = cached_share(moved, target)
    return moved * ((1 - cached) / memory_rate + cached / l2_rate)


def _bar(total_s: Floats, products: Products, architecture: str) -> None:
    """Make candidates infinitely slow that the library does not have."""
    batched = products.sizes[:, 0] > 1
    total_s[np.ix_(batched, _SPLIT[0] > 1)] = np.inf
    if tiles := BATCHED_TILES.get(architecture):
        total_s[np.ix_(batched, _outside(tiles))] = np.inf
    if tiles := TRANSPOSED_TILES.get(architecture):
        total_s[np.ix_(products.transposed & ~batched, _outside(tiles))] = np.inf


def _outside(tiles: _Tiles) -> NDArray[np.bool_]:
    menu = [tile not in tiles for tile in TILES for _ in SPLITS]
    return np.array(menu, dtype=np.bool_)


def _power_share(target: Target, p: GemmParameters) -> float:
    """Return the share of the peak that the board's power sustains."""
    natural = NATURAL_WATTS_PER_TFLOPS.get(target.device.architecture)
    if natural is None or p.power_exponent == 0:
        return 1.0
    full_watts = natural * target.device.flops_per_s["fp32"] * 1e-12
    return float(min(1.0, target.watts / full_watts) ** p.power_exponent)
