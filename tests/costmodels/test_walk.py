"""Kernels that walk step by step."""

from __future__ import annotations

import pytest

from perfc.costmodels import KernelTable, load_target, lower_bound, price
from perfc.costmodels.roofline import ROOFLINE
from perfc.costmodels.walk import WALK
from perfc.ir import Kernel, Record, Work

V100 = load_target("v100-sxm2-16g")


def _walk(batch: int, columns: int, steps: int) -> Kernel:
    nbytes = 4 * batch * columns * steps
    params = Record({"rows": batch, "cols": columns, "steps": steps})
    return Kernel("ctc_walk", "fp32", "fp32", params, Work(nbytes, nbytes, nbytes))


def test_a_walk_takes_its_steps() -> None:
    """Each step waits for the one before; sequences walk beside each other."""
    kernels = [
        *(_walk(8, 31, 100), _walk(8, 31, 200)),
        *(_walk(80, 31, 100), _walk(8, 3000, 100)),
    ]
    priced = price(kernels, V100, (WALK, ROOFLINE)).seconds
    short_s, long_s, more_s, wide_s = priced - V100.device.kernel_floor_s

    assert 2 * short_s == pytest.approx(long_s)
    assert short_s == more_s
    assert 3 * short_s == pytest.approx(wide_s)  # three turns of 1,024 threads


def _topk(slices: int, size: int, bits: int = 32) -> Kernel:
    params = Record({"rows": slices, "cols": size, "steps": bits // 2 + 2})
    nbytes = slices * size * bits // 8
    return Kernel("topk", "fp32", "fp32", params, Work(0, nbytes, slices * 12))


def test_selecting_walks_through_digits() -> None:
    """A block for a slice: few slices take as long as one, 16 bits half of it.

    Slices of a warp and less are alike; of many elements further loads count alone.
    """
    one, some, narrow, small, wave, long = price(
        [
            *(_topk(1, 32), _topk(2560, 32), _topk(1, 32, 16), _topk(1, 4)),
            *(_topk(2561, 32), _topk(1, 16384)),
        ],
        V100,
        (WALK, ROOFLINE),
    ).seconds

    floor_s = V100.device.kernel_floor_s
    assert one == some == small
    assert (narrow - floor_s) / (one - floor_s) == pytest.approx(10 / 18)
    assert (wave - floor_s) / (one - floor_s) == pytest.approx(2)
    assert 5 < (long - floor_s) / (one - floor_s) < 16


def test_a_walk_of_many_sequences_is_bound_by_memory() -> None:
    """Where there is enough to move, the latency of steps does not matter."""
    kernel = _walk(200_000, 31, 50)
    bound_s = lower_bound(KernelTable([kernel]), V100)[0]

    assert bound_s < 0.81 * price([kernel], V100, (WALK,)).seconds[0]
    assert price([kernel], V100, (WALK,)).seconds[0] < 1.3 * bound_s


def test_a_cpu_walks_without_barriers() -> None:
    """The model is of GPUs: on a CPU another one has the kernel."""
    assert not WALK.claims(KernelTable([_walk(8, 31, 100)]), load_target("cpu")).any()
