"""GEMMs: what of a GPU decides their time, and that rows do not mix."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.costmodels.signatures import gemm

from perfc.costmodels import KernelTable, Target, cost_models, load_target, price
from perfc.costmodels.gemm import (
    GEMM,
    Gemms,
    Size,
    gemms_of,
    kernels_of,
    simt_parameters,
    simt_seconds,
    tensor_parameters,
    tensor_seconds,
    tile_spread,
)

H100 = load_target("h100")
SIZES = st.integers(1, 9000)


def one_gemm(m: int, n: int, k: int, target: Target) -> float:
    """Return the seconds of a bf16 GEMM by the parameters that all GPUs share."""
    moved, no = 2.0 * (m * k + k * n + m * n), np.array([False])
    gemms = Gemms(
        np.array([[1.0], [m], [n], [k]]),
        np.array([moved]),
        np.array([target.peak("bf16")]),
        transposed=no,
        across=no,
        biased=no,
        own=np.array([0]),
    )
    return float(tensor_seconds(gemms, target, tensor_parameters("any"))[0])


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=8))
def test_a_row_costs_what_it_costs_alone(sizes: list[tuple[int, int, int]]) -> None:
    """Whatever stands beside it in the table: tensor cores, SIMT, split or not."""
    kernels = [gemm(*s, dtype=d, math=d) for s in sizes for d in ("bf16", "fp32")]
    together = GEMM.estimate(KernelTable(kernels), H100).seconds
    alone = [GEMM.estimate(KernelTable([k]), H100).seconds[0] for k in kernels]

    assert pytest.approx(alone, rel=1e-5) == together.tolist()


def test_power_is_of_the_rate_that_a_kernel_reaches() -> None:
    """T4 allows half of its peak: a kernel that reaches little more is hardly slowed.

    What a kernel leaves of the peak for other instructions draws no power of FMAs.
    """
    t4, usual = load_target("t4"), simt_parameters()
    gemms = gemms_of(KernelTable([gemm(16384, 16384, 16384)]), t4)

    seconds = [
        simt_seconds(gemms, t4, attrs.evolve(usual, tile_efficiency=reach))[0]
        for reach in (1.0, 0.6)
    ]

    assert pytest.approx(seconds[0], rel=0.01) == seconds[1]


@pytest.mark.parametrize("size", [2048, 8192])
def test_kernels_that_share_loads_are_faster(size: int) -> None:
    """On a GPU like H100 in all but its clusters of blocks, a GEMM takes longer."""
    device = attrs.evolve(H100.device, compute_capability="8.0")
    older = attrs.evolve(H100, device=device)

    assert one_gemm(size, size, size, H100) < one_gemm(size, size, size, older)


def _tflops(name: str, side: int) -> float:
    """Return the rate of a square bf16 GEMM."""
    kernel = gemm(side, side, side, dtype="bf16", math="bf16")
    seconds = GEMM.estimate(KernelTable([kernel]), load_target(name)).seconds[0]
    return 2 * side**3 / float(seconds) * 1e-12


def test_blackwell_of_data_centers_computes_as_hopper() -> None:
    """Its GEMMs reach as large a share of the peak as those of H200, within a tenth."""
    shares = [
        _tflops(name, 8192) / (load_target(name).peak("bf16") * 1e-12)
        for name in ("b200", "h200")
    ]

    assert pytest.approx(shares[1], rel=0.1) == shares[0]
    assert kernels_of(load_target("b200")) == "Hopper"


@pytest.mark.parametrize(
    ("side", "tflops"), [(2048, (285, 289)), (4096, (368, 391)), (8192, (332, 350))]
)
def test_blackwell_of_workstations_computes_as_ada(
    side: int, tflops: tuple[float, float]
) -> None:
    """Within a sixth of what PyTorch reached on an RTX PRO 6000, in fp16 and bf16.

    Source: github.com/zzc0721/torch-performance-test-data/issues/160.
    """
    assert kernels_of(load_target("rtx-pro-6000")) == "Ada Lovelace"
    least, most = tflops
    assert least / 1.17 < _tflops("rtx-pro-6000", side) < most * 1.17


def test_a_board_that_sustains_less_slows_down_long_gemms() -> None:
    """Half the base clock costs a GEMM of 20 ms more than one of 20 us."""
    weak = load_target("a100", {"gpu.base_clock_mhz": "600"})
    usual = load_target("a100")
    ratios = [one_gemm(m, m, m, weak) / one_gemm(m, m, m, usual) for m in (1024, 16384)]
    assert 1 < ratios[0] < ratios[1]


def _step_s(target: Target, n: int, batch: int) -> float:
    """Return what a step of the depth takes in one tile for each of a batch."""
    short, long = (gemm(32, n, k, b=batch) for k in (512, 1024))
    seconds = GEMM.estimate(KernelTable([short, long]), target).seconds
    return float(seconds[1] - seconds[0]) / 512


def test_tiles_of_few_threads_for_the_lanes_leave_them_idle() -> None:
    """One tile of 128 threads on each SM: slower where an SM has as many lanes."""
    v100 = load_target("v100")
    wide = attrs.evolve(
        v100, device=attrs.evolve(v100.device, name="wide", lanes_per_sm=128)
    )

    alone, crowded = (_step_s(v100, 128, batch) for batch in (40, 80))

    assert _step_s(wide, 128, 40) > 1.2 * alone
    assert alone < crowded < 2 * alone


def test_batches_that_fill_volta_have_square_tiles() -> None:
    """Of 32 rows, half of each 64 x 64 tile is idle, but only where there are many."""
    v100 = load_target("v100")
    few, many = (_step_s(v100, 128, batch) for batch in (119, 121))

    assert many > 1.2 * few


@pytest.mark.parametrize("name", ["a10", "l4", "l40s", "4090"])
@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_batches_whose_tile_is_not_known_span_both(name: str, layout: str) -> None:
    """Their interval reaches from tiles of 128 x 128 to the least of a menu.

    Rows of A100 have large ones, and H100's, by a later library, the best: 34.5 us for
    2,048 of 27 x 27 x 128. Neither says which the other GPUs have.
    """
    target, kernel = load_target(name), gemm(27, 27, 128, b=2048, layout=layout)
    found = price([kernel], target, cost_models())
    sigma = float(np.hypot(found.sigma_shared, found.sigma_independent)[0])
    seconds = float(found.seconds[0])
    least, most = (seconds * np.exp(each * 1.645 * sigma) for each in (-1, 1))

    size = Size(2048.0, 27.0, 27.0, 128.0, kernel.work.bytes, target.peak("fp32"))
    whole = tile_spread(size, target, transposed=layout == "nt")

    assert least <= seconds * np.exp(-whole) < seconds
    assert most > seconds * np.exp(whole)
    assert whole > 0.3


@pytest.mark.parametrize(
    ("sizes", "layout", "across"),
    [
        ((1, 1024, 2048), "tn", True),
        ((1, 1024, 2048), "nn", True),
        ((1, 1024, 2048), "nt", False),
        ((1024, 1, 2048), "tn", True),
        ((1024, 1, 2048), "nn", False),
        ((64, 1024, 2048), "tn", False),
    ],
)
def test_sums_across_the_lines_of_a_matrix_need_a_second_kernel(
    sizes: tuple[int, int, int], layout: str, *, across: bool
) -> None:
    """Of a matrix times a vector; as a linear layer the same is one kernel."""
    v100 = load_target("v100")
    kernels = [gemm(*sizes, layout=layout), gemm(*sizes, layout="nt")]

    whole, in_line = price(kernels, v100, cost_models()).seconds.tolist()

    assert across == (whole > in_line + 1e-6)


def test_a_linear_layer_with_a_bias_is_in_line() -> None:
    """Measured rows name its layout in the columns of cuBLAS: `tn`."""
    kernel = gemm(1, 1024, 2048, layout="tn")
    linear = attrs.evolve(kernel, params=kernel.params.updated(bias=True))
    turned = attrs.evolve(linear, params=linear.params.updated(layout="nt"))

    named, said = price([linear, turned], load_target("v100"), cost_models()).seconds

    assert named == said
