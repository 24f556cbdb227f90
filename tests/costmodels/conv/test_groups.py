"""Convolutions with groups: depthwise ones, and those of a few channels each."""

from __future__ import annotations

import math

import attrs
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


def _seconds(dtype: str, groups: int, target: str) -> float:
    kernel = _kernel(dtype, groups)
    return float(price([kernel], load_target(target), cost_models()).seconds[0])


@pytest.mark.parametrize("target", ["v100", "t4", "a100", "l40s", "mi300x"])
def test_a_depthwise_convolution_takes_no_longer_in_half_the_bytes(target: str) -> None:
    """The same kernel computes both; it waits for memory."""
    assert _seconds("fp16", CHANNELS, target) < 0.75 * _seconds(
        "fp32", CHANNELS, target
    )


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_depthwise_convolutions_wait_for_memory(dtype: str) -> None:
    """Nine multiplications a pixel are few: since A100 within twice the bound."""
    for name in ("a100", "b200", "l40s", "rtx-4090"):
        target = load_target(name)
        bound_s = float(lower_bound(KernelTable([_kernel(dtype, CHANNELS)]), target)[0])
        assert bound_s < _seconds(dtype, CHANNELS, name) < 2 * bound_s


def test_depthwise_convolutions_on_hopper_wait_for_instructions() -> None:
    """Its rows take nearly as long in half the bytes, several times the bound."""
    single, half = (_seconds(dtype, CHANNELS, "h100") for dtype in ("fp32", "fp16"))
    target = load_target("h100")
    bound_s = float(lower_bound(KernelTable([_kernel("fp32", CHANNELS)]), target)[0])

    assert 0.75 * single < half < single
    assert 2 * bound_s < single


@pytest.mark.parametrize("groups", [8, 32])
def test_groups_take_less_on_a_faster_gpu(groups: int) -> None:
    """Groups have no kernels of their own as batches have, which are tiles of 128."""
    times = [_seconds("fp32", groups, name) for name in ("t4", "v100", "a100", "h100")]

    assert sorted(times, reverse=True) == times


@pytest.mark.parametrize("phase", ["backward_data", "backward_weight"])
def test_gradients_of_depthwise_ones_take_as_much_more_in_all_types(phase: str) -> None:
    """As one kernel computes them; on a GPU whose memory is no limit."""
    target = load_target("t4")
    target = attrs.evolve(
        target, device=attrs.evolve(target.device, kernel_floor_s=0.0)
    )
    ratios: list[float] = []
    for dtype in ("fp32", "fp16"):
        kernels = [_kernel(dtype, CHANNELS), _kernel(dtype, CHANNELS, phase=phase)]
        forward_s, backward_s = price(kernels, target, cost_models()).seconds.tolist()
        ratios.append(backward_s / forward_s)

    assert ratios[0] == pytest.approx(ratios[1], rel=0.02)


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
