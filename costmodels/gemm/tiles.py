"""The kernels that a library has for GEMMs: their tiles, by architecture."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats

Tiles: TypeAlias = tuple[tuple[int, int], ...]
"""Sizes of tiles: rows and columns of a row-major result."""

SIMT_TILES: Tiles = (
    (32, 32),
    (32, 64),
    (128, 32),
    (32, 128),
    (64, 64),
    (64, 128),
    (128, 128),
)
"""Tiles without tensor cores.

cuBLAS kernels are named for them, in its columns: `sgemm_128x64` is 64 x 128 here.
"""

THREADS: Mapping[tuple[int, int], int] = MappingProxyType(
    {(64, 64): 64, (128, 128): 256, (32, 32): 64}
)
"""Threads of a tile's block where they are not `MOST_HAVE`.

64 outputs a thread in the largest (S. Gray, maxas, "SGEMM"); rows of single tiles on
V100 say that those of 128 x 32 have 128 threads, and 64 x 64 only 64.
"""

MOST_HAVE = 128
"""Threads of the other tiles' blocks."""

SLICES: Mapping[tuple[int, int], int] = MappingProxyType({(32, 32): 4, (32, 64): 4})
"""Parts that the threads of one tile cut the summed dimension into (`sliced1x4`)."""

TENSOR_TILES: Tiles = (
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
"""Tiles on tensor cores."""

BATCHED_TILES: Mapping[str, Tiles] = MappingProxyType(
    {
        "Pascal": ((64, 128),),
        "Volta": ((64, 64), (128, 32), (32, 128)),
        "Turing": ((64, 64), (64, 128), (128, 32), (32, 128)),
        "Ampere": ((128, 128),),
        "Ada Lovelace": ((128, 128),),
    }
)
"""Tiles that cuBLAS 12 takes for batched GEMMs without tensor cores; any elsewhere.

From the names of the kernels in NeuSight's measurements; Ada's from the same library.
"""

NO_BATCHED_ROWS = frozenset({"8.6", "8.7", "8.9"})
"""Compute capabilities whose `BATCHED_TILES` are those of others: no row shows them."""

FULL_TILES: Mapping[str, Tiles] = MappingProxyType({"Volta": ((64, 64), (128, 32))})
"""Tiles of `BATCHED_TILES` left for batches of many tiles, of fewer all."""

FULL_ROUNDS, FULL_TILE = 3, 64
"""Tiles for each SM beyond which they are many, and the rows and columns of each.

Names of kernels on V100 change there.
"""

TRANSPOSED_TILES: Mapping[str, Tiles] = MappingProxyType(
    {
        "Pascal": ((32, 128), (128, 32), (64, 64)),
        "Ampere": ((32, 32), (32, 64), (128, 32), (32, 128), (64, 128)),
        "Ada Lovelace": ((32, 32), (32, 64), (128, 32), (32, 128), (64, 128)),
    }
)
"""Tiles of single GEMMs with one operand transposed, as a linear layer's."""

ASYNCHRONOUS = frozenset({"9.0", "10.0", "10.3"})
"""Compute capabilities whose kernels for tensor cores copy and compute on their own.

Two blocks of a cluster load what both need once, and a block begins its next tile while
it ends the last ("NVIDIA H100 Tensor Core GPU Architecture", whitepaper, 2022: thread
block clusters, tensor memory accelerator). Consumer Blackwell (12.0) has neither.
"""

_CLUSTER = 2
"""Blocks that share what they load, where they can."""

_PAIRED = frozenset({"10.0", "10.3"})
"""Compute capabilities whose blocks are pairs of SMs, which compute a tile of up to
256 x 256 together, each with one half of both operands (PTX ISA, "tcgen05.mma",
`cta_group::2`)."""


@attrs.frozen(eq=False)
class Menu:
    """Kernels to choose from; arrays of shape (kernels, 1).

    Attributes:
        tile_m: Rows of a tile.
        tile_n: Columns of it.
        slots: Outputs that a tile counts for among those that fill an SM.
        loads: Elements that it loads of each step, over its outputs.
        stages_again: Whether each tile fills its pipeline anew.
        threads: Threads of a tile's block; None: not known.

    """

    tile_m: Floats
    tile_n: Floats
    slots: Floats
    loads: Floats
    stages_again: bool = True
    threads: Floats | None = None

    @functools.cached_property
    def area(self) -> Floats:
        """Outputs of a tile."""
        return self.tile_m * self.tile_n

    @functools.cached_property
    def intensity(self) -> Floats:
        """Operands that a tile's outputs read of each step, over the outputs."""
        return (self.tile_m + self.tile_n) / self.area

    @functools.cached_property
    def per_row(self) -> Floats:
        """One over `tile_m`."""
        return 1 / self.tile_m

    @functools.cached_property
    def per_column(self) -> Floats:
        """One over `tile_n`."""
        return 1 / self.tile_n


@functools.cache
def simt_menu(tiles: Tiles) -> Menu:
    """Return kernels without tensor cores."""
    rows, columns = _sides(tiles)
    slices = np.array([[float(SLICES.get(tile, 1))] for tile in tiles])
    loads = (rows + columns) / (rows * columns)
    threads = np.array([[float(THREADS.get(tile, MOST_HAVE))] for tile in tiles])
    return Menu(rows, columns, rows * columns * slices, loads, threads=threads)


@functools.cache
def tensor_menu(compute_capability: str) -> Menu:
    """Return the kernels for tensor cores."""
    rows, columns = _sides(TENSOR_TILES)
    own = compute_capability in ASYNCHRONOUS
    shared = _CLUSTER if own else 1
    if compute_capability in _PAIRED:
        shared *= 2
    loads = (rows * shared + columns) / (rows * shared * columns)
    return Menu(rows, columns, rows * columns, loads, stages_again=not own)


def _sides(tiles: Tiles) -> tuple[Floats, Floats]:
    sides = np.array(tiles, dtype=np.float64)
    return sides[:, :1], sides[:, 1:]
