"""How far off the predicted time may be."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.passes.launch_graphs import (
    TARGET,
    Builder,
    Case,
    analyse,
    case_of,
    estimate,
    kernel,
    random_case,
)
from tests.passes.simulator import DeadlockError, Simulator

from perfc.costmodels.machine import RuntimeConstants
from perfc.ir import LaunchGraph, TaskKind
from perfc.passes.facts import Interval

Z = 1.6448536269514722
"""95th percentile of the standard normal distribution."""
IDEAL = attrs.evolve(
    TARGET,
    runtime=RuntimeConstants(launch_latency_s=0.0),
    device=attrs.evolve(TARGET.device, stream_gap_s=0.0, graph_gap_s=0.0),
)
"""A target without launch latency and stream gap."""


def deadlocks(case: Case) -> bool:
    """Tell whether the case has a schedule."""
    try:
        Simulator(case.graphs, case.seconds, 0.0, 0.0, 0.0).run()
    except DeadlockError:
        return True
    return False


CASES = [case for case in map(random_case, range(100)) if not deadlocks(case)]


def beside(host_s: float, kernels_s: Sequence[float], launches: Sequence[int]) -> Case:
    """Return a host task, and kernels on a stream that do not wait for it.

    Args:
        host_s: What the host task takes.
        kernels_s: What each kernel signature takes.
        launches: Signature of each kernel on the stream.

    """
    b = Builder(LaunchGraph("g"))
    thread, stream = b.graph.thread(), b.graph.stream()
    for number in range(len(kernels_s)):
        b.graph.intern(kernel(number))
    b.host(thread, host_s)
    for number in launches:
        b.device(TaskKind.KERNEL, stream, kernels_s[number], kernel=number)
    return case_of(b, kernels_s=kernels_s)


def unsure(
    case: Case,
    *,
    host: tuple[float, float] = (0.0, 0.0),
    device: tuple[float, float] = (0.0, 0.0),
    models: Sequence[str] = (),
) -> Interval:
    """Return the interval for these (shared, independent) uncertainties."""
    hosted = [
        attrs.evolve(h, sigma_shared=host[0], sigma_independent=host[1])
        for h in case.hosted
    ]
    costs = [
        estimate(
            cost.seconds.tolist(),
            models=models,
            sigma_shared=device[0],
            sigma_independent=device[1],
        )
        for cost in case.costs
    ]
    changed = attrs.evolve(case, hosted=tuple(hosted), costs=tuple(costs))
    return analyse(changed, IDEAL).interval


def near(*expected: float) -> object:
    """Compare up to rounding."""
    return pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_the_interval_holds_the_time(case: Case) -> None:
    """The ends lie on either side of the time, the low one above 0."""
    result = analyse(case)
    interval, time_s = result.interval, result.path.time_s
    assert interval.low_s <= time_s <= interval.high_s
    assert (interval.low_s > 0) == (time_s > 0)
    assert 0 <= interval.device_share <= 1


@pytest.mark.parametrize("case", CASES)
def test_without_uncertainty_it_is_a_point(case: Case) -> None:
    """Both ends are the very time."""
    result = analyse(case.less_certain(host=0.0, device=0.0))
    time_s = result.path.time_s
    assert Interval(time_s, time_s, 0.0) == result.interval


@given(
    case=st.sampled_from(CASES),
    host=st.floats(1.0, 8.0),
    device=st.floats(1.0, 8.0),
)
def test_more_uncertainty_never_makes_it_narrower(
    case: Case, host: float, device: float
) -> None:
    """Neither end moves towards the time, whichever uncertainty grows."""
    before = analyse(case).interval
    after = analyse(case.less_certain(host=host, device=device)).interval
    assert after.low_s <= before.low_s * (1 + 1e-12)
    assert after.high_s >= before.high_s * (1 - 1e-12)


def test_one_shared_error_moves_the_ends_to_its_percentiles() -> None:
    """A single kernel has the percentiles of its log-normal time."""
    interval = unsure(beside(0.0, [1.0], [0]), device=(0.2, 0.0))
    assert near(math.exp(-0.2 * Z), math.exp(0.2 * Z), 1.0) == (
        interval.low_s,
        interval.high_s,
        interval.device_share,
    )


def test_shared_and_own_errors_add_in_quadrature() -> None:
    """For one kernel the two are one log-normal error."""
    interval = unsure(beside(0.0, [2.0], [0]), device=(0.3, 0.4))
    ends = (interval.low_s, interval.high_s)
    assert near(2 * math.exp(-0.5 * Z), 2 * math.exp(0.5 * Z)) == ends


def test_kernels_of_one_model_err_together() -> None:
    """Two kernels of one model are as unsure as one of double length."""
    case = beside(0.0, [1.0, 1.0], [0, 1])
    double = unsure(beside(0.0, [2.0], [0]), device=(0.2, 0.0))
    together = unsure(case, device=(0.2, 0.0), models=["a", "a"])
    apart = unsure(case, device=(0.2, 0.0), models=["a", "b"])
    assert near(double.low_s, double.high_s) == (together.low_s, together.high_s)
    # Each model moves by 1/sqrt(2) of its percentile.
    move = 0.2 * Z / math.sqrt(2)
    expected = near(2 * math.exp(-move), 2 * math.exp(move))
    assert expected == (apart.low_s, apart.high_s)


def test_launches_of_one_signature_err_together() -> None:
    """A wrong estimate of a shape is wrong each time the shape is launched."""
    same = unsure(beside(0.0, [1.0, 1.0], [0, 0]), device=(0.0, 0.2))
    other = unsure(beside(0.0, [1.0, 1.0], [0, 1]), device=(0.0, 0.2))
    assert near(2 * math.exp(0.2 * Z)) == (same.high_s,)
    assert near(2 + math.sqrt(2) * math.expm1(0.2 * Z)) == (other.high_s,)


def test_what_does_not_decide_the_time_does_not_matter() -> None:
    """Far from balance, only the bottleneck's uncertainty counts."""
    host_bound = unsure(beside(9.0, [1.0], [0]), host=(0.1, 0.0), device=(0.1, 0.1))
    device_bound = unsure(beside(1.0, [9.0], [0]), host=(0.1, 0.1), device=(0.1, 0.0))
    ends = 9 * math.exp(-0.1 * Z), 9 * math.exp(0.1 * Z)
    assert near(*ends, 0.0) == (
        host_bound.low_s,
        host_bound.high_s,
        host_bound.device_share,
    )
    assert near(*ends, 1.0) == (
        device_bound.low_s,
        device_bound.high_s,
        device_bound.device_share,
    )


def test_a_bottleneck_that_moves_limits_the_effect() -> None:
    """A host that is faster than expected leaves the device's time."""
    case = beside(1.0, [0.95], [0])
    host_only = unsure(case, host=(0.1, 0.0))
    assert near(0.95, math.exp(0.1 * Z)) == (host_only.low_s, host_only.high_s)
    device_only = unsure(case, device=(0.1, 0.0))
    assert near(1.0, 0.95 * math.exp(0.1 * Z)) == (
        device_only.low_s,
        device_only.high_s,
    )


def test_balanced_host_and_device_may_both_be_faster() -> None:
    """Lowering either shows nothing; the low side is still not empty."""
    interval = unsure(beside(1.0, [1.0], [0]), host=(0.1, 0.0), device=(0.1, 0.0))
    low = 1 + math.expm1(-0.1 * Z) / math.sqrt(2)
    assert near(low, 0.5) == (interval.low_s, interval.device_share)


def test_stated_durations_are_certain() -> None:
    """What a trace measured has no uncertainty."""
    b = Builder(LaunchGraph("g"))
    b.device(TaskKind.KERNEL, b.graph.stream(), 1.0)
    interval = unsure(case_of(b), host=(0.5, 0.5), device=(0.5, 0.5))
    assert Interval(1.0, 1.0, 0.0) == interval


def test_the_low_end_stays_above_zero() -> None:
    """However little is known."""
    interval = unsure(beside(1.0, [1.0], [0]), host=(30.0, 30.0), device=(30.0, 30.0))
    assert 0 < interval.low_s < 1e-9


def test_errors_of_all_ranks_are_shared() -> None:
    """Two ranks of the same launch graph are as unsure as one."""
    case = beside(1.0, [3.0], [0])
    twice = Case(case.hosted * 2, case.costs * 2, case.seconds * 2)
    assert unsure(case, device=(0.2, 0.0)) == unsure(twice, device=(0.2, 0.0))
