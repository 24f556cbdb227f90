"""Convolutions with groups: depthwise ones, and those of a few channels each."""

from __future__ import annotations

import math

import pytest
from tests.measurements.rows import measured

from perfc.costmodels import (
    KernelTable,
    cost_models,
    load_target,
    lower_bound,
    price,
    price_table,
)
from perfc.ir import Kernel
from perfc.measurements import kernel_of

CHANNELS = 256


def _kernel(dtype: str, groups: int, **more: int) -> Kernel:
    sizes = {"n": 64, "c_in": CHANNELS, "c_out": CHANNELS, "size": 56, "stride": 1}
    window = {"kernel": 3, "padding": 1, "groups": groups}
    return kernel_of(measured("conv2d", dtype, **{**sizes, **window, **more}))


def _seconds(dtype: str, groups: int, target: str) -> float:
    kernel = _kernel(dtype, groups)
    return float(price([kernel], load_target(target), cost_models()).seconds[0])


@pytest.mark.parametrize("target", ["v100", "t4", "a100", "h100", "l40s", "mi300x"])
def test_a_depthwise_convolution_takes_no_longer_in_half_the_bytes(target: str) -> None:
    """The same kernel computes both; it waits for memory."""
    assert _seconds("fp16", CHANNELS, target) < 0.75 * _seconds(
        "fp32", CHANNELS, target
    )


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_depthwise_convolutions_wait_for_memory(dtype: str) -> None:
    """Nine multiplications a pixel are few: since A100 within twice the bound."""
    for name in ("a100", "h100", "b200", "l40s", "rtx-4090"):
        target = load_target(name)
        bound_s = float(lower_bound(KernelTable([_kernel(dtype, CHANNELS)]), target)[0])
        assert bound_s < _seconds(dtype, CHANNELS, name) < 2 * bound_s


@pytest.mark.parametrize("groups", [8, 32])
def test_groups_take_less_on_a_faster_gpu(groups: int) -> None:
    """Groups have no kernels of their own as batches have, which are tiles of 128."""
    times = [_seconds("fp32", groups, name) for name in ("t4", "v100", "a100", "h100")]

    assert sorted(times, reverse=True) == times


@pytest.mark.parametrize("dtype", ["fp32", "fp64", "fp16"])
@pytest.mark.parametrize("groups", [32, CHANNELS])
def test_one_kernel_is_priced_as_in_a_table(dtype: str, groups: int) -> None:
    """To the last bits."""
    kernels, target = [_kernel(dtype, groups)] * 2, load_target("a100-pcie-40g")
    table = price_table(KernelTable(kernels), target, cost_models()).seconds

    alone = float(price(kernels[:1], target, cost_models()).seconds[0])
    assert math.isclose(alone, float(table[0]), rel_tol=1e-12)
