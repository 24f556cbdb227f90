"""What intervals state of kernels, by their size and their target."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from tests.costmodels.signatures import ALL_MODELS, gemm

from perfc.costmodels import KernelTable, Target, load_target, price
from perfc.costmodels.pricing import interval_rows, interval_sizes

T4, H100 = load_target("t4"), load_target("h100")


def _whole(target: Target, *sides: int) -> list[float]:
    """Return what square GEMMs are uncertain by."""
    kernels = [gemm(side, side, side, dtype="bf16", math="bf16") for side in sides]
    found = price(kernels, target, ALL_MODELS)
    whole: list[float] = np.hypot(found.sigma_shared, found.sigma_independent).tolist()
    return whole


@pytest.mark.parametrize("name", ["a100", "h100", "l40s", "b200"])
def test_short_gemms_are_less_certain(name: str) -> None:
    """On GPUs with rows and without; very long ones are all alike."""
    short, long, longer, longest = _whole(load_target(name), 128, 4096, 16384, 32768)

    assert short > long >= longer
    assert longer == longest


@pytest.mark.parametrize("name", ["h200", "b200", "h100"])
def test_a_profile_makes_nothing_certain_that_it_has_not_measured(name: str) -> None:
    """One of a host alone, or of other ops, leaves GEMMs as they were."""
    plain = load_target(name)
    mine = attrs.evolve(plain, profile="mine")

    assert _whole(plain, 512, 4096) == _whole(mine, 512, 4096)
    assert _whole(plain, 512) == _whole(mine, 512)


def _of_type(name: str, dtype: str) -> float:
    """Return what a square GEMM of a type is uncertain by."""
    kernel = gemm(4096, 4096, 4096, dtype="bf16", math=dtype)
    found = price([attrs.evolve(kernel, dtype=dtype)], load_target(name), ALL_MODELS)
    return float(np.hypot(found.sigma_shared, found.sigma_independent)[0])


def test_rows_of_one_type_make_another_no_more_certain() -> None:
    """H100 has rows of bf16 and none of int8, which is as on GPUs left out."""
    assert _of_type("h100", "int8") > 2 * _of_type("h100", "bf16")


@pytest.mark.parametrize("name", ["a100-sxm-80g", "h100", "l40s"])
def test_fp16_is_as_certain_as_bf16(name: str) -> None:
    """Where its GEMMs were not measured: their kernels are the same."""
    assert _of_type(name, "fp16") == _of_type(name, "bf16")


@pytest.mark.parametrize("name", ["a100-sxm-80g", "l40s", "a10"])
def test_tf32_is_less_certain_than_bf16_where_it_has_no_rows(name: str) -> None:
    """Its tiles hold half as many numbers: parameters of bf16 are off by a third."""
    assert _of_type(name, "tf32") > 0.35
    assert _of_type("h100", "tf32") < 0.2


@pytest.mark.parametrize("name", ["l40s", "l4", "a10", "rtx-pro-6000"])
def test_odd_lines_are_slow_on_ada_as_on_ampere(name: str) -> None:
    """Capabilities without rows of such lines take them from their architecture's."""
    target = load_target(name)
    even, odd = (
        float(price([each], target, ALL_MODELS).seconds[0])
        for n in (50256, 50257)
        for each in [gemm(4096, n, 1024, dtype="bf16", math="bf16")]
    )

    assert odd > 2 * even


@pytest.mark.parametrize("name", ["a100-sxm-80g", "h100", "l40s"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_gemms_of_odd_lines_are_less_certain(name: str, dtype: str) -> None:
    """Rows that set intervals have even ones; alone and in a table alike.

    H100's narrow interval held 4 of 9 such GEMMs of bf16, and this holds all.
    """
    sides = (4096, 50257)
    kernels = [gemm(4096, n, 1024, dtype="bf16", math="bf16") for n in sides]
    kernels = [attrs.evolve(each, dtype=dtype, math=dtype) for each in kernels]
    target = load_target(name)

    table = price(kernels, target, ALL_MODELS)
    alone = [price([each], target, ALL_MODELS) for each in kernels]

    whole = np.hypot(table.sigma_shared, table.sigma_independent)
    assert whole[1] > 3 * whole[0]
    assert whole.tolist() == pytest.approx(
        [np.hypot(p.sigma_shared[0], p.sigma_independent[0]) for p in alone]
    )


def test_a_board_of_a_measured_chip_is_as_one_left_out() -> None:
    """Rows of V100-PCIe's intervals hold 42 of 99 GEMMs traced on V100-SXM2."""
    assert _of_type("h200", "bf16") > 2 * _of_type("h100", "bf16")
    assert _of_type("h200", "fp16") >= _of_type("h200", "bf16")


def test_sizes_are_of_memory() -> None:
    """A kernel is as large as what memory moves in its time, between two ends."""
    rate = T4.device.memory.bytes_per_s

    sizes = interval_sizes(np.array([0.0, 1e8 / rate, 2e8 / rate, 1.0]), T4)

    assert pytest.approx([0.03, 1.0, 2.0, 30.0]) == sizes


def test_a_faster_memory_makes_no_kernel_longer() -> None:
    """What is uncertain about short kernels takes as long on fast GPUs."""
    assert pytest.approx([1.0]) == interval_sizes(np.array([1e-4]), H100)


@pytest.mark.parametrize(
    ("target", "batch", "name"),
    [
        ("v100", 1, "gemm fp32"),
        ("p100", 1, "gemm before Volta fp32"),
        ("p100", 8, "gemm batched fp32"),
    ],
)
def test_gemms_before_volta_have_their_own(target: str, batch: int, name: str) -> None:
    """Those that are not batched: their kernels are Maxwell's."""
    table = KernelTable([gemm(64, 64, 64, b=batch)])

    named = {
        name for name, rows in interval_rows(table, load_target(target)) if rows[0]
    }

    assert {name} == named
