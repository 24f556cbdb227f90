"""What intervals state of kernels, by their size and their target."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from tests.costmodels.signatures import ALL_MODELS, gemm, over_rows

from perfc.costmodels import KernelTable, Target, load_target, price
from perfc.costmodels.kernels import OF_TARGET
from perfc.costmodels.pricing import (
    as_fitted,
    interval_rows,
    interval_sizes,
    price_table,
)
from perfc.costmodels.pricing.intervals import NOWHERE, elsewhere_of

T4, H100 = load_target("t4"), load_target("h100")


def _whole(target: Target, *sides: int) -> list[float]:
    """Return what square GEMMs are uncertain by."""
    kernels = [gemm(side, side, side, dtype="bf16", math="bf16") for side in sides]
    found = price(kernels, target, ALL_MODELS)
    whole: list[float] = found.sigma.tolist()
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
    return float(found.sigma[0])


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

    whole = table.sigma
    assert whole[1] > 3 * whole[0]
    assert whole.tolist() == pytest.approx([p.sigma[0] for p in alone])


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_a_board_of_a_measured_chip_is_as_sure_as_another_of_its_kind(
    dtype: str,
) -> None:
    """It is another board of the chip either way; a chip without rows is less sure."""
    assert _of_type("h200", dtype) == pytest.approx(_of_type("h100", dtype), rel=0.02)
    assert _of_type("h100", dtype) < _of_type("b200", dtype)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("h100", {"session", "board"}),
        ("h200", {"session", "board"}),
        ("b200", {"session", "architecture"}),
    ],
)
def test_factors_are_those_of_what_was_measured(name: str, known: set[str]) -> None:
    """Errors of a chip left out hold what its boards differ by."""
    kernel = gemm(4096, 4096, 4096, dtype="bf16", math="bf16")

    found = price([kernel], load_target(name), ALL_MODELS).sigma_target[:, 0]

    assert known == {f for f, sigma in zip(OF_TARGET, found, strict=True) if sigma}


def test_rows_of_a_fitted_session_have_no_other_board() -> None:
    """They were measured on the very board; rows of somebody else's were not."""
    table = KernelTable([gemm(4096, 4096, 4096, dtype="bf16", math="bf16")] * 2)
    said = price_table(table, H100, ALL_MODELS)
    sources = np.array(["aiconfigurator sglang/0.5.10", "somebody"])

    found = as_fitted(said, table, H100, sources)

    assert not found.sigma_target[:, 0].any()
    assert found.sigma[0] < found.sigma[1] == said.sigma[1]
    assert found.sigma[0] == as_fitted(said, table, H100).sigma[1]


def test_rows_of_known_software_on_another_chip_are_of_no_other_session() -> None:
    """B200's board and chip were not measured, but how rows were was."""
    b200 = load_target("b200")
    table = KernelTable([gemm(4096, 4096, 4096, dtype="bf16", math="bf16")] * 2)
    said = price_table(table, b200, ALL_MODELS)
    sources = np.array(["aiconfigurator sglang/0.5.10", "somebody"])

    found = as_fitted(said, table, b200, sources)

    session = OF_TARGET.index("session")
    assert 0 == found.sigma_target[session, 0] < found.sigma_target[session, 1]
    assert found.sigma_target[2, 0] == said.sigma_target[2, 0] > 0


def test_copies_and_collectives_have_no_board() -> None:
    """Links decide what they take, of which intervals know nothing."""
    assert NOWHERE == elsewhere_of("memcpy") == elsewhere_of("all_reduce")


def test_models_of_their_own_are_as_wide_as_boards_differ() -> None:
    """A model that says less of what its kernels share states what boards differ by."""
    kernel = over_rows("transpose", 4096, 4096)
    found = price([kernel], load_target("h100"), ALL_MODELS)

    assert found.sigma_target[OF_TARGET.index("board"), 0] > 0
    assert found.sigma_common[0] >= found.sigma_target[1, 0]


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
