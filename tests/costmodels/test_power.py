"""What kernels draw, and how long they take under a limit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.costmodels.signatures import conv, copy, gemm, over_rows

from perfc.costmodels import Draws, KernelTable, cost_models, draws_of, load_target
from perfc.costmodels.machine import Power
from perfc.costmodels.pricing import price_table
from perfc.ir import Kernel

H100 = load_target("h100")
LARGE = gemm(8192, 8192, 8192, dtype="bf16", math="bf16")
SIZES = st.integers(1, 1 << 14)


def gemm_in(m: int, n: int, k: int, mode: str) -> Kernel:
    """Return a GEMM of a mode."""
    return gemm(m, n, k, dtype=mode, math=mode)


def convolution(channels: int) -> Kernel:
    """Return a convolution that keeps its channels."""
    return conv(channels, channels, 56, kernel=3)


MODES = st.sampled_from(["bf16", "fp16", "fp32"])
gemms = st.builds(gemm_in, SIZES, SIZES, SIZES, MODES)
others = st.one_of(
    st.builds(over_rows, st.sampled_from(["elementwise", "layer_norm"]), SIZES, SIZES),
    st.builds(copy, st.integers(1, 1 << 30), st.just("h2d")),
    st.builds(convolution, st.integers(1, 256)),
)
limits = st.floats(131, 1200)


def power_of_h100() -> Power:
    """Return what its sheet says."""
    assert H100.power is not None
    return H100.power


def draws(*kernels: Kernel) -> Draws:
    """Return what kernels draw on an H100 at their prices."""
    table = KernelTable(kernels)
    seconds = price_table(table, H100, cost_models()).seconds
    return draws_of(table, seconds, H100, power_of_h100())


@given(st.lists(st.one_of(gemms, others), min_size=1, max_size=4), limits, limits)
def test_a_higher_limit_makes_no_kernel_slower(
    kernels: list[Kernel], one: float, other: float
) -> None:
    """Nor does it make one draw less, and no limit makes one faster than its price."""
    found = draws(*kernels)
    low, high = found.at(min(one, other)), found.at(max(one, other))

    assert (low.slowdown >= high.slowdown).all()
    assert (low.watts <= high.watts).all()
    assert (high.slowdown >= 1).all()


@given(gemms, limits)
def test_a_kernel_that_computes_stays_within_a_limit(
    kernel: Kernel, most: float
) -> None:
    """Unless it is the lowest clock that keeps it above."""
    found = draws(kernel)
    at = found.at(most)

    within = at.watts + power_of_h100().idle_watts <= most * (1 + 1e-9)
    lowest = at.clock_share <= power_of_h100().least_share
    assert (within | lowest | ~found.clocked).all()


@given(gemms)
def test_a_flop_takes_joules_with_the_clock(kernel: Kernel) -> None:
    """Watts fall with the square of the clock, time with its first power."""
    found = draws(kernel)
    fast, slow = found.at(900), found.at(400)
    joules = slow.watts * slow.slowdown / fast.watts

    clock = slow.clock_share / fast.clock_share
    assert np.where(found.clocked, clock, 1.0) == pytest.approx(joules)


def test_a_price_holds_at_the_burst() -> None:
    """Before the driver reacts, every kernel takes what it is priced at."""
    kernels = (LARGE, gemm(512, 512, 512), over_rows("layer_norm", 4096, 4096))

    assert [1, 1, 1] == draws(*kernels).at(
        power_of_h100().burst_watts
    ).slowdown.tolist()


def test_a_large_gemm_of_half_precision_is_held_at_the_cap() -> None:
    """At 700 W an H100 took 1,621 us for 8192^3, at 1,356 MHz."""
    table = KernelTable([LARGE])
    seconds = price_table(table, H100, cost_models()).seconds
    at = draws_of(table, seconds, H100, power_of_h100()).at(700)

    assert pytest.approx(1621, rel=0.03) == float((seconds * at.slowdown)[0]) * 1e6
    assert pytest.approx(1356, rel=0.06) == 1980 * float(at.clock_share[0])


@pytest.mark.parametrize(
    "kernel",
    [
        gemm(1, 8192, 8192, dtype="bf16", math="bf16"),
        over_rows("elementwise", 1 << 14, 4096),
        copy(1 << 30, "h2d"),
    ],
)
def test_what_waits_for_memory_takes_as_long_at_any_clock(kernel: Kernel) -> None:
    """Decoding's GEMMs, streaming kernels and copies."""
    assert [1] == draws(kernel).at(200).slowdown.tolist()


def test_arithmetic_that_nobody_has_measured_is_not_known() -> None:
    """A mode without joules says so; what moves bytes needs none."""
    power = power_of_h100()
    table = KernelTable([LARGE, over_rows("elementwise", 64, 64)])
    bare = Power(
        cap_watts=power.cap_watts,
        burst_watts=power.burst_watts,
        idle_watts=power.idle_watts,
        busy_watts=power.busy_watts,
        joules_per_byte=power.joules_per_byte,
        joules_per_flop={},
        least_share=power.least_share,
    )

    found = draws_of(table, np.array([1e-3, 1e-6]), H100, bare)

    assert [False, True] == found.known.tolist()


def test_slow_downs_are_less_certain_than_prices() -> None:
    """None where there is none; else by a share of what it is."""
    at = draws(LARGE, over_rows("layer_norm", 4096, 4096)).at(500)

    assert 0 == at.sigma[1] < at.sigma[0] < np.log(at.slowdown[0])
