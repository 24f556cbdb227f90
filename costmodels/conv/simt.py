"""Convolutions without tensor cores: an implicit GEMM, or one of Winograd's.

Three algorithms of cuDNN, each in tiles and waves over the SMs; the fastest is taken,
unless the launch names one:

    implicit   tiles of 128 pixels x 32, 64 or 128 channels, through the window's depth
    fused      Winograd's F(2x2, 3x3): blocks of 32 tiles of 2x2 pixels x 32 channels,
               16 multiplications each for 36; the filters transformed before
    winograd   F(4x4, 3x3): 36 multiplications for 144, as 36 GEMMs of 64 x 64 tiles
               between kernels that transform images, filters and results

(Lavin and Gray, arXiv 1509.09308; the shapes of blocks are in the names of the kernels
of measured rows.) A board that allows less power than its rate at the boost clock asks
for runs slower: power goes with the cube of the clock. Parameters: `fitted/conv.toml`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Generic, NamedTuple, Protocol

import attrs

from perfc.costmodels.constants import constants
from perfc.costmodels.fitted_files import fitted
from perfc.costmodels.kernels import Maths, Number
from perfc.costmodels.machine import Target
from perfc.costmodels.streaming import stream_share

FUSED_BLOCKS: Mapping[str, tuple[tuple[int, int, int], ...]] = MappingProxyType(
    {
        "Pascal": (
            (1, 4, 8),
            (2, 2, 8),
            (2, 4, 4),
            (4, 1, 8),
            (4, 2, 4),
            (4, 4, 2),
        )
    }
)
"""Images, rows and columns of 2x2 tiles of a block (`winograd_…_tile244n`)."""

_ONE_BLOCK = ((1, 4, 8),)
"""Images, rows and columns of 2x2 tiles of a block, on Volta and later."""

_FUSED_TILES, _FUSED_CHANNELS = 32, 32
_PIXEL_TILE = 128
_CHANNEL_TILES = (32, 64, 128)
_GEMM_TILE = 64
_PER_SM = 2
"""Tiles of the GEMMs of F(4x4, 3x3) that an SM works on at a time."""

FREE_CLOCK_WATTS_PER_TFLOPS = constants("conv").table("free_clock_watts_per_tflops")
FREE_CLOCK_HZ = constants("conv").table("free_clock_hz")
"""Power by architecture, W per TFLOP/s, and the clock in Hz that it is stated at.

Boards of this process sustain that clock; at others the power goes with the square.
"""


@attrs.frozen(kw_only=True)
class ConvParameters:
    """What the sheets do not say; times of work are over those at the peak rates."""

    implicit: float
    """Time of an implicit GEMM's 128 x 128 tile."""
    narrow_tile: float
    """What each halving of its tile adds, over the tile's own share."""
    tile_fill_s: float
    """Start and end of such a tile."""
    fused: float
    """Time of a block of F(2x2, 3x3)."""
    block_fill_s: float
    """Start and end of such a block."""
    fused_filters: float
    """Time to transform its filters, over that of their bytes."""
    tensors: float
    """Share of the time to move images and results that arithmetic does not hide."""
    gemm: float
    """Time of the tiles of F(4x4, 3x3)."""
    filters: float
    """Time to transform its filters, over that of their bytes."""
    images: float
    """Time to transform its images, over that of their bytes."""
    results: float
    """Time to transform its results, over that of their bytes."""
    start_s: float
    """Added to the target's kernel floor."""


@functools.cache
def conv_parameters() -> ConvParameters:
    """Return the fitted parameters."""
    return ConvParameters(**fitted("conv")["kernel"])


class Convolutions(NamedTuple, Generic[Number]):
    """Sizes of a 2-d convolution, or of many, each of shape (rows,)."""

    images: Number
    c_in: Number
    """Channels of an image."""
    c_out: Number
    """Channels of a result."""
    side: Number
    """Rows of a result, and columns."""
    window: Number
    """Points of the window."""

    @property
    def pixels(self) -> Number:
        """Pixels of all results."""
        return self.images * self.side * self.side


@attrs.frozen
class _Rates:
    """What one SM and the memory do, per second."""

    sms: int
    sm_flops: float
    numbers: float
    """Numbers of 4 bytes that move."""


def _rates_of(target: Target) -> _Rates:
    sms = target.device.sm_count
    flops_per_s = target.device.flops_per_s["fp32"] * clock_share(target)
    bytes_per_s = target.device.memory.bytes_per_s * stream_share(target)
    return _Rates(sms, flops_per_s / sms, bytes_per_s / 4)


def clock_share(target: Target) -> float:
    """Return the share of the boost clock that the board's power sustains."""
    architecture = target.device.architecture
    if architecture not in FREE_CLOCK_HZ:
        return 1.0
    scale = (target.device.sm_clock_hz / FREE_CLOCK_HZ[architecture]) ** 2
    watts_per_tflops = FREE_CLOCK_WATTS_PER_TFLOPS[architecture]
    wanted = watts_per_tflops * scale * target.device.flops_per_s["fp32"] * 1e-12
    return float(min(1.0, target.watts / wanted) ** (1 / 3))


def implicit_seconds(
    sizes: Convolutions[Number], target: Target, p: ConvParameters, maths: Maths[Number]
) -> Number:
    """Return the duration as an implicit GEMM, without what moves beside it."""
    rates, ceil = target.once(_rates_of), maths.ceil
    depth = sizes.c_in * sizes.window
    heights = ceil(sizes.pixels / _PIXEL_TILE)
    found: list[Number] = []
    for tile in _CHANNEL_TILES:
        slower = p.implicit * (1 + p.narrow_tile * (_CHANNEL_TILES[-1] / tile - 1))
        tile_s = depth * (2 * _PIXEL_TILE * tile * slower / rates.sm_flops)
        waves = ceil(heights * ceil(sizes.c_out / tile) * (1 / rates.sms))
        found.append(waves * (tile_s + p.tile_fill_s))
    return functools.reduce(maths.least, found) + _moved_seconds(sizes, rates, p)


def fused_seconds(
    sizes: Convolutions[Number], target: Target, p: ConvParameters, maths: Maths[Number]
) -> Number:
    """Return the duration in F(2x2, 3x3), one kernel after that of the filters."""
    rates, ceil = target.once(_rates_of), maths.ceil
    across = ceil(sizes.side / 2)
    columns = ceil(sizes.c_out / _FUSED_CHANNELS)
    shapes = FUSED_BLOCKS.get(target.device.architecture, _ONE_BLOCK)
    blocks = functools.reduce(
        maths.least,
        [
            ceil(sizes.images / n) * ceil(across / h) * ceil(across / w)
            for n, h, w in shapes
        ],
    )
    flops = 2 * 16 * _FUSED_TILES * _FUSED_CHANNELS * sizes.c_in
    block_s = flops * (p.fused / rates.sm_flops) + p.block_fill_s
    filters = (9 + 16) * sizes.c_in * sizes.c_out
    seconds = ceil(blocks * columns * (1 / rates.sms)) * block_s
    seconds = seconds + filters * (p.fused_filters / rates.numbers)
    return seconds + _moved_seconds(sizes, rates, p)


def winograd_seconds(
    sizes: Convolutions[Number], target: Target, p: ConvParameters, maths: Maths[Number]
) -> Number:
    """Return the duration in F(4x4, 3x3), its transforms included."""
    rates, ceil, pixels = target.once(_rates_of), maths.ceil, sizes.pixels
    across = ceil(sizes.side / 4)
    tiles = sizes.images * (across * across)
    rows, columns = ceil(tiles / _GEMM_TILE), ceil(sizes.c_out / _GEMM_TILE)
    waves = ceil(36 * rows * columns / _PER_SM * (1 / rates.sms)) * _PER_SM
    tile_s = sizes.c_in * (2 * _GEMM_TILE**2 * p.gemm / rates.sm_flops)
    moved = p.filters * (9 + 36) * sizes.c_in * sizes.c_out
    moved = moved + p.images * (pixels + 36 * tiles) * sizes.c_in
    moved = moved + p.results * (pixels + 36 * tiles) * sizes.c_out
    return waves * tile_s + moved / rates.numbers


def _moved_seconds(
    sizes: Convolutions[Number], rates: _Rates, p: ConvParameters
) -> Number:
    numbers = sizes.pixels * (sizes.c_in + sizes.c_out)
    return numbers * (p.tensors / rates.numbers)


class _Seconds(Protocol):
    """A formula of one convolution or of many."""

    def __call__(
        self,
        sizes: Convolutions[Number],
        target: Target,
        p: ConvParameters,
        maths: Maths[Number],
        /,
    ) -> Number:
        """Return seconds."""
        ...


DIRECT = "implicit"
"""The algorithm that computes any window."""

ALGORITHMS: Mapping[str, _Seconds] = {
    DIRECT: implicit_seconds,
    "fused_winograd": fused_seconds,
    "winograd": winograd_seconds,
}
"""Functions for algorithms' seconds, by the names that launches give them."""
