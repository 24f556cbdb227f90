"""Gradients of convolutions by algorithms that sum up in one order."""

from __future__ import annotations

import pytest

from perfc.costmodels import KernelTable, load_target
from perfc.costmodels.conv import CONV
from perfc.costmodels.kernels import OneSignature
from perfc.ir import Kernel, Record, Work

V100 = load_target("v100")
PARAMS = Record({"n": 16, "c_in": 64, "c_out": 96, "kernel": 5})


def gradient(phase: str, *, deterministic: bool) -> Kernel:
    """Return a gradient in fp32 of 28 x 28 pixels."""
    work = Work(2 * 16 * 28 * 28 * 64 * 96 * 25, 10**7, 10**6)
    params = PARAMS.updated(phase=phase, deterministic=deterministic)
    return Kernel("conv2d", "fp32", "fp32", params, work)


@pytest.mark.parametrize("phase", ["backward_data", "backward_weight"])
def test_they_take_longer_and_are_less_certain(phase: str) -> None:
    """Than those that may add by atomics; no rows say by how much."""
    kernels = [gradient(phase, deterministic=d) for d in (False, True)]
    found = CONV.estimate(KernelTable(kernels), V100)
    least_s = V100.device.kernel_floor_s

    free_s, ordered_s = found.seconds.tolist()
    assert (ordered_s - least_s) / (free_s - least_s) == pytest.approx(
        CONV.deterministic_overhead, rel=0.02
    )
    assert found.sigma_shared[1] > 1.5 * found.sigma_shared[0]


@pytest.mark.parametrize("deterministic", [False, True])
def test_one_alone_is_as_in_a_table(deterministic: bool) -> None:
    """Both by the same formulas."""
    kernel = gradient("backward_weight", deterministic=deterministic)
    alone = CONV.estimate_one(OneSignature(kernel), V100)
    table = CONV.estimate(KernelTable([kernel]), V100)

    assert alone is not None
    assert pytest.approx(alone.seconds) == table.seconds[0]
    assert alone.sigma_shared == table.sigma_shared[0]


def test_forward_has_one_order_anyway() -> None:
    """Only gradients are summed up by atomics."""
    plain = gradient("forward", deterministic=False)
    ordered = gradient("forward", deterministic=True)
    seconds = CONV.estimate(KernelTable([plain, ordered]), V100).seconds

    assert seconds[0] == seconds[1]
