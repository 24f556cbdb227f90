"""Convolutions with groups: depthwise ones, and those of a few channels each."""

from __future__ import annotations

import math

import pytest
from tests.measurements.rows import measured

from perfc.costmodels import KernelTable, cost_models, load_target, lower_bound, price
from perfc.costmodels.pricing import price_table
from perfc.ir import Kernel
from perfc.measurements import kernel_of

CHANNELS = 256


def _kernel(dtype: str, groups: int, **more: int | str) -> Kernel:
    sizes = {"n": 64, "c_in": CHANNELS, "c_out": CHANNELS, "size": 56, "stride": 1}
    window = {"kernel": 3, "padding": 1, "groups": groups}
    return kernel_of(measured("conv2d", dtype, **{**sizes, **window, **more}))


def _seconds(dtype: str, groups: int, target: str, **more: int | str) -> float:
    kernel = _kernel(dtype, groups, **more)
    return float(price([kernel], load_target(target), cost_models()).seconds[0])


@pytest.mark.parametrize("target", ["v100", "t4", "a100", "l40s", "h100"])
@pytest.mark.parametrize("phase", ["forward", "backward_weight"])
def test_depthwise_convolutions_wait_for_instructions(target: str, phase: str) -> None:
    """Rows of an H100 take nearly as long in half the bytes, many times the bound.

    Kernels of other GPUs that run CUDA are the same ones.
    """
    single, half = (
        _seconds(dtype, CHANNELS, target, phase=phase) for dtype in ("fp32", "fp16")
    )
    kernels = KernelTable([_kernel("fp32", CHANNELS, phase=phase)])
    bound_s = float(lower_bound(kernels, load_target(target))[0])

    assert half < single
    assert half > (0.5 if phase == "backward_weight" else 0.6) * single
    assert 1.5 * bound_s < single


def test_depthwise_convolutions_of_other_makers_wait_for_memory() -> None:
    """Their libraries have kernels of their own, of which there are no rows."""
    single, half = (_seconds(dtype, CHANNELS, "mi300x") for dtype in ("fp32", "fp16"))

    assert half < 0.75 * single


@pytest.mark.parametrize("name", ["jetson-tx2", "p100-pcie-16g", "v100", "t4"])
def test_depthwise_convolutions_take_clocks_of_sms(name: str) -> None:
    """An SM does 13 flops a clock, beside what moves: of two SMs or of eighty."""
    kernel, device = _kernel("fp32", CHANNELS), load_target(name).device

    clocked_s = kernel.work.flops / 13 / (device.sm_count * device.sm_clock_hz)
    moved_s = 1.15 * kernel.work.bytes / device.memory.bytes_per_s
    assert _seconds("fp32", CHANNELS, name) == pytest.approx(
        clocked_s + moved_s, rel=0.05
    )


@pytest.mark.parametrize("groups", [8, 32])
def test_groups_take_less_on_a_faster_gpu(groups: int) -> None:
    """Groups have no kernels of their own as batches have, which are tiles of 128."""
    times = [_seconds("fp32", groups, name) for name in ("t4", "v100", "a100", "h100")]

    assert sorted(times, reverse=True) == times


@pytest.mark.parametrize("dtype", ["fp32", "fp64", "fp16"])
@pytest.mark.parametrize("groups", [32, CHANNELS])
@pytest.mark.parametrize("more", [{}, {"beside": 1}, {"phase": "backward_data"}])
def test_one_kernel_is_priced_as_in_a_table(
    dtype: str, groups: int, more: dict[str, int | str]
) -> None:
    """To the last bits."""
    kernel, target = _kernel(dtype, groups, **more), load_target("a100-pcie-40g")
    kernels = [kernel] * 2
    table = price_table(KernelTable(kernels), target, cost_models()).seconds

    alone = float(price(kernels[:1], target, cost_models()).seconds[0])
    assert math.isclose(alone, float(table[0]), rel_tol=1e-12)
