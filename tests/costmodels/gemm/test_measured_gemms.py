"""GEMMs of GPUs that were measured, of others with their chip, and beyond sizes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.costmodels.signatures import gemm

from perfc.costmodels import KernelTable, Provenance, Target, load_target
from perfc.costmodels.attention.residual import measured_rows
from perfc.costmodels.gemm import (
    GEMM,
    gemms_of,
    has_network,
    tensor_parameters,
    tensor_seconds,
)
from perfc.costmodels.pricing import price_table
from perfc.costmodels.pricing.one_kernel import price_one
from perfc.ir import Kernel, Record, Work

H100 = load_target("h100")
LARGEST = 65536


def _bf16(m: int, n: int, k: int) -> Kernel:
    return gemm(m, n, k, dtype="bf16", math="bf16")


SIZES = [(64, 4096, 4096), (500, 1024, 7168), (4096, 8192, 8192), (3000, 5120, 640)]


def _seconds(target: Target, sizes: list[tuple[int, int, int]]) -> np.ndarray:
    return GEMM.estimate(KernelTable([_bf16(*size) for size in sizes]), target).seconds


def _formula_s(target: Target, sizes: list[tuple[int, int, int]]) -> np.ndarray:
    gemms = gemms_of(KernelTable([_bf16(*size) for size in sizes]), target)
    parameters = tensor_parameters(target.device.architecture)
    return tensor_seconds(gemms, target, parameters)


@pytest.mark.parametrize(
    ("name", "dtype", "known"),
    [
        ("h200", "bf16", True),
        ("h200", "fp16", True),
        ("h100-pcie", "bf16", False),
        ("a100-sxm-40g", "bf16", True),
        ("a100-pcie-80g", "fp32", True),
        ("a100", "fp32", True),
        ("p100", "fp32", True),
        ("v100", "fp32", True),
        ("t4", "fp32", False),
        ("a30", "bf16", False),
        ("l4", "bf16", False),
        ("b200", "bf16", False),
        ("titan-xp", "fp32", False),
    ],
)
def test_chips_with_as_many_sms_take_the_same_kernels(
    name: str, dtype: str, *, known: bool
) -> None:
    """Of one compute capability; their rows are of one type each."""
    assert has_network(load_target(name), dtype) == known


def test_what_rows_say_is_carried_to_the_same_chip() -> None:
    """By as much as the measured GPU is off; the rest the model says."""
    h200 = load_target("h200")
    found, measured = _seconds(h200, SIZES), _seconds(H100, SIZES)

    ratios = _formula_s(h200, SIZES) / _formula_s(H100, SIZES)
    assert pytest.approx((measured * ratios).tolist()) == found.tolist()
    assert ratios[0] < 0.8 < ratios[2] <= 1
    # It was not measured itself.
    estimate = GEMM.estimate(KernelTable([_bf16(*SIZES[0])]), h200)
    own = GEMM.estimate(KernelTable([_bf16(*SIZES[0])]), H100)
    assert estimate.sigma_independent[0] > own.sigma_independent[0]
    alone = price_one(_bf16(*SIZES[0]), h200, (GEMM,))
    assert alone is not None
    assert pytest.approx(found[0], rel=1e-6) == alone.seconds[0]


def test_sizes_up_to_some_times_those_measured_are_corrected() -> None:
    """As the largest measured ones are, and beyond as those of the end.

    Below the least, the model says.
    """
    n = k = LARGEST
    sizes = [(4096, times * n, k // 8) for times in (1, 2, 8, 9, 64)]
    factors = _seconds(H100, sizes) / _formula_s(H100, sizes)
    assert (np.abs(np.log(factors / factors[0])) < 0.1).all()
    assert (factors != 1).all()
    assert pytest.approx([factors[2]] * 2, rel=1e-3) == list(factors[3:])

    small = [(4096, 16, k // 8)]
    assert pytest.approx([1.0]) == list(_seconds(H100, small) / _formula_s(H100, small))


def test_only_measured_sizes_are_as_sure() -> None:
    """Those beyond are less sure, by what they were farther off."""
    kernels = [_bf16(4096, n, 8192) for n in (LARGEST, 2 * LARGEST)]

    table = price_table(KernelTable(kernels), H100, (GEMM,))
    alone = [price_one(kernel, H100, (GEMM,)) for kernel in kernels]

    shared, own = table.sigma_shared, table.sigma_independent
    assert pytest.approx(1.4 * shared[0]) == shared[1]
    assert 1.2 * own[0] < own[1] < 1.4 * own[0]  # besides what other sessions differ by
    for number, one in enumerate(alone):
        assert one is not None
        assert pytest.approx(table.sigma_shared[number]) == one.sigma_shared[0]
        assert (
            pytest.approx(table.sigma_independent[number]) == one.sigma_independent[0]
        )
    assert set(table.provenance) == {Provenance.FITTED}


def test_imagined_gpus_take_what_their_own_rows_say() -> None:
    """Other SMs make no other GPU of one: GEMMs and attention alike."""
    as_many = load_target("h100-pcie", {"gpu.sm_count": "132"})
    fewer = load_target("h200", {"gpu.sm_count": "131"})
    attention = Kernel(
        "attention",
        "bf16",
        "bf16",
        Record(
            {
                "batch": 4,
                "heads": 16,
                "q_len": 1024,
                "kv_len": 1024,
                "head_dim": 64,
                "causal": False,
            }
        ),
        Work(4 * 4 * 16 * 1024 * 1024 * 64, 3 << 23, 1 << 23),
    )
    table = KernelTable([attention])

    assert not has_network(as_many, "bf16")
    assert not measured_rows(table, as_many).any()
    assert has_network(fewer, "bf16")
    assert measured_rows(table, fewer).all()
    assert not measured_rows(table, load_target("h100-pcie")).any()
