"""GEMMs on GPUs that are imagined: more of anything does not cost time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.costmodels.signatures import gemm

from perfc.costmodels import Target, cost_models, load_target, price
from perfc.ir import Kernel

GPUS = (("t4", "fp32"), ("v100", "fp32"), ("a100", "bf16"), ("h100", "bf16"))
"""Of each, GEMMs of one type were measured in thousands."""

FIELDS = ("l2_mib", "sm_count", "memory_gb_per_s", "l2_gb_per_s")

TOLERANCE = 3 ** (1 / 6) + 1e-3
"""A kernel is chosen by the longest of three times, and takes their norm."""

sides = st.integers(min_value=16, max_value=8192)


def _gemm(m: int, n: int, k: int, dtype: str, b: int = 1) -> Kernel:
    return gemm(m, n, k, b=b, dtype=dtype, math=dtype)


def _with_more(gpu: str, field: str, times: float) -> Target:
    held = float(load_target(gpu).fields[f"gpu.{field}"])
    more = round(times * held) if field == "sm_count" else times * held
    return load_target(gpu, {f"gpu.{field}": str(more)})


def _seconds(kernels: list[Kernel], target: Target) -> np.ndarray:
    return price(kernels, target, cost_models()).seconds


@given(
    sizes=st.tuples(sides, sides, sides),
    batch=st.sampled_from((1, 1, 12, 256)),
    gpu=st.sampled_from(GPUS[1:]),
    field=st.sampled_from(FIELDS),
    times=st.floats(min_value=1.05, max_value=4.0),
)
@settings(max_examples=100, deadline=None)
def test_more_of_anything_is_no_slower(
    sizes: tuple[int, int, int],
    batch: int,
    gpu: tuple[str, str],
    field: str,
    times: float,
) -> None:
    """But for a fifth, where another kernel is chosen.

    On T4, whose board lacks power, chosen kernels are slowed down afterwards.
    """
    name, dtype = gpu
    kernels = [_gemm(*sizes, dtype, batch)]
    before = _seconds(kernels, load_target(name))
    after = _seconds(kernels, _with_more(name, field, times))

    assert after[0] <= before[0] * TOLERANCE


@pytest.mark.parametrize(("gpu", "dtype"), GPUS)
@pytest.mark.parametrize("field", FIELDS)
def test_hardly_any_gemm_is_slower(gpu: str, dtype: str, field: str) -> None:
    """Of hundreds one in twenty-five is by more than a hundredth, most are faster."""
    random = np.random.default_rng(0)
    sizes = np.exp2(random.uniform(4, 13, (400, 3))).astype(int).tolist()
    kernels = [_gemm(m, n, k, dtype) for m, n, k in sizes]
    ratio = _seconds(kernels, _with_more(gpu, field, 2.0))
    ratio /= _seconds(kernels, load_target(gpu))

    assert (ratio > 1.01).mean() <= 0.04
    assert ratio.mean() < 1


def test_twice_the_cache_helps_a_small_gemm() -> None:
    """The network of T4's rows has seen no other cache: it says what T4's does."""
    kernels = [_gemm(64, 1024, 1024, "fp32")]
    before = _seconds(kernels, load_target("t4"))
    after = _seconds(kernels, _with_more("t4", "l2_mib", 2.0))

    assert after[0] <= before[0]


@pytest.mark.parametrize(("gpu", "dtype"), GPUS)
def test_one_kernel_costs_what_a_table_says(gpu: str, dtype: str) -> None:
    """With and without rows, of a GPU with half as many SMs again: bit for bit."""
    target = _with_more(gpu, "sm_count", 1.5)
    kernels = [
        _gemm(64, 1024, 1024, dtype),
        _gemm(300, 4096, 512, dtype, 8),
        _gemm(1, 1 << 16, 1 << 14, dtype),
    ]
    for kernel, seconds in zip(kernels, _seconds(kernels, target), strict=True):
        assert seconds == _seconds([kernel], target)[0]
