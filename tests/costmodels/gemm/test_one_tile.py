"""GEMMs by one tile: the model's own formula, and the limits beside it."""

from __future__ import annotations

import math

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfc.costmodels import load_target
from perfc.costmodels.gemm import Size, Tile, tile_second
from perfc.costmodels.gemm.formula import shipped_machine
from perfc.costmodels.gemm.kernels import best_of_one
from perfc.costmodels.gemm.tiles import SIMT_TILES, TENSOR_TILES, Menu

A100, H100 = load_target("a100"), load_target("h100")
SIZES = st.integers(1, 9000)
SIDES = st.sampled_from([16, 32, 64, 128, 256])
WARPS = st.sampled_from([2, 4, 8])
TILES = st.tuples(SIDES, SIDES, SIDES, WARPS).map(lambda each: Tile(*each))


def gemm(m: float, n: float, k: float, mode: str = "bf16") -> Size[float]:
    """Return a GEMM on A100."""
    width = 4 if mode == "fp32" else 2
    moved = width * (m * k + k * n + m * n)
    return Size[float](1.0, m, n, k, float(moved), A100.peak(mode))


def by_formula(size: Size[float], tile: Tile, mode: str) -> float:
    """Return the seconds by a library that has this tile alone."""
    machine = shipped_machine(A100, mode, 0)
    rows, columns = np.array([[float(tile.rows)]]), np.array([[float(tile.columns)]])
    lanes = np.array([[32.0 * tile.warps]]) if mode == "fp32" else None
    area = rows * columns
    menu = Menu(rows, columns, area, (rows + columns) / area, threads=lanes)
    step = attrs.evolve(machine.parameters, k_step=float(tile.depth))
    machine = attrs.evolve(machine, menu=menu, parameters=step)
    return best_of_one(size, machine, splits=False)


@settings(deadline=None, max_examples=200)
@given(SIZES, SIZES, SIZES, TILES, st.integers(1, 5), st.sampled_from(["bf16", "fp32"]))
def test_limits_only_add(
    m: int, n: int, k: int, tile: Tile, stages: int, mode: str
) -> None:
    """By no tile is a GEMM sooner done than by a library that has that tile."""
    size, tile = gemm(m, n, k, mode), tile._replace(stages=stages)

    assert by_formula(size, tile, mode) * (1 - 1e-9) <= tile_second(
        size, tile, A100, mode
    )


@pytest.mark.parametrize("mode", ["bf16", "fp32"])
@pytest.mark.parametrize("size", [(4096, 4096, 4096), (8192, 1024, 2048)])
def test_the_tiles_of_libraries_are_within_the_limits(
    size: tuple[int, int, int], mode: str
) -> None:
    """Large GEMMs by the best of a library's tiles take what the model says."""
    tiles = SIMT_TILES if mode == "fp32" else TENSOR_TILES
    asked = gemm(*size, mode)
    found = min(tile_second(asked, Tile(*t, 32, 8), A100, mode) for t in tiles)
    expected = best_of_one(asked, shipped_machine(A100, mode, 0), splits=False)

    assert pytest.approx(expected, rel=0.02) == found


@settings(deadline=None, max_examples=100)
@given(SIZES, SIZES, SIZES, TILES)
def test_a_buffer_more_is_never_slower_until_fewer_blocks_fit(
    m: int, n: int, k: int, tile: Tile
) -> None:
    """Of a tile that fills an SM alone, so that no fewer blocks matter."""
    size, tile = gemm(m, n, k), tile._replace(rows=128, columns=64)
    times = [tile_second(size, tile._replace(stages=s), A100, "bf16") for s in (1, 2)]

    assert times[1] <= times[0] * (1 + 1e-9) or math.isinf(times[1])


@pytest.mark.parametrize(
    ("tile", "on_a100", "on_h100"),
    [
        (Tile(128, 256, 64, warps=8, stages=3), True, True),
        (Tile(128, 256, 64, warps=8, stages=4), False, True),  # 192 KiB of operands
        (Tile(128, 256, 64, warps=2, stages=2), False, False),  # 512 sums a thread
        (Tile(64, 64, 32, warps=64), False, False),  # 2,048 threads
    ],
)
def test_what_no_sm_holds_takes_forever(
    tile: Tile, *, on_a100: bool, on_h100: bool
) -> None:
    """Shared memory, registers and threads are those of the sheet and of CUDA."""
    size = gemm(4096, 4096, 4096)
    found = [math.isfinite(tile_second(size, tile, t, "bf16")) for t in (A100, H100)]

    assert [on_a100, on_h100] == found


def test_blackwell_has_its_sums_elsewhere() -> None:
    """Accumulators in tensor memory exceed no thread's registers."""
    tile = Tile(128, 256, 64, warps=2, stages=2)

    assert math.isfinite(
        tile_second(gemm(4096, 4096, 4096), tile, load_target("b200"), "bf16")
    )


def test_warps_read_shared_memory_again() -> None:
    """A tile of 128 x 128 keeps 8 warps busy; 32 read more than they compute."""
    size = gemm(8192, 8192, 8192)
    few, many = (
        tile_second(size, Tile(128, 128, 32, warps), A100, "bf16") for warps in (8, 32)
    )

    assert 1.2 * few < many


def test_a_long_sum_is_better_cut() -> None:
    """One tile of output leaves all SMs but one idle."""
    size = gemm(64, 64, 65536)
    tile = Tile(64, 64, 64)
    whole, cut = (
        tile_second(size, tile._replace(parts=parts), A100, "bf16") for parts in (1, 64)
    )

    assert 10 * cut < whole


def test_fine_steps_cost_their_barriers() -> None:
    """A depth of 16 numbers of 16 bits is slower than one of 32."""
    size = gemm(4096, 4096, 4096)
    fine, usual = (
        tile_second(size, Tile(128, 128, depth, 4), A100, "bf16") for depth in (16, 32)
    )

    assert usual < fine


def test_a_block_that_stays_fills_its_pipeline_once() -> None:
    """A persistent kernel of many tiles is faster."""
    size = gemm(8192, 8192, 512)
    tile = Tile(128, 128, 64, 8)
    anew, stays = (
        tile_second(size, tile._replace(persistent=p), H100, "bf16")
        for p in (False, True)
    )

    assert stays < anew
