"""Kernels and collectives that share a device and its links."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.passes.launch_graphs import GAP_S, GRAPH_GAP_S, LATENCY_S, random_case

from perfc.ir import LaunchGraph, TaskKind
from perfc.passes import Timeline
from perfc.passes.timing import TimeConstants, link_graphs, solve
from perfc.passes.timing.sharing import Demand, fair_level, share, slowdowns, with_waits
from perfc.passes.timing.timeline import ScheduleError

CONSTANTS = TimeConstants(GAP_S, GRAPH_GAP_S, LATENCY_S)
FREE = TimeConstants(0.0, 0.0, 0.0)
KERNEL = Demand(computes=1.0)
SHARES = st.lists(st.floats(0.0, 1.0), max_size=6)


def _linked(seeds: range) -> Iterator[tuple[Timeline, list[float], dict[int, Demand]]]:
    """Yield random timelines, seconds, and demands of what runs on the device."""
    for seed in seeds:
        case, rng = random_case(seed), random.Random(seed)
        seconds = [s for rank in case.seconds for s in rank]
        try:
            timeline = link_graphs(tuple(case.graphs), CONSTANTS)
        except ScheduleError:
            continue
        demands: dict[int, Demand] = {}
        for number, (rank, task) in enumerate(case.flat()):
            kind = case.graphs[rank].kind[task]
            if kind is TaskKind.KERNEL:
                urgent = rng.random() < 0.2
                demands[number] = Demand(
                    computes=1.0, memory=rng.random(), urgent=urgent
                )
            elif kind is TaskKind.COLLECTIVE:
                demands[number] = Demand(
                    held=0.1, link=rng.random(), beside=1.5, urgent=rng.random() < 0.2
                )
        yield timeline, seconds, demands


def test_what_shares_nothing_takes_what_it_took() -> None:
    """Durations stay as they are where nothing has demands."""
    for timeline, seconds, _ in _linked(range(60)):
        shared = share(timeline, seconds, {})

        assert seconds == shared.taken_s
        assert timeline is with_waits(timeline, shared)


def test_nothing_gets_faster_and_the_schedule_follows() -> None:
    """No task takes less, and no task starts before it did without contention."""
    slowed = 0
    for timeline, seconds, demands in _linked(range(150)):
        shared = share(timeline, seconds, demands)
        taken_s = shared.taken_s
        before_s, _, _ = solve(timeline, seconds)
        after_s, _, _ = solve(with_waits(timeline, shared), taken_s)

        assert pytest.approx(shared.start_s, rel=1e-9, abs=1e-12) == after_s
        assert all(t >= s * (1 - 1e-9) for t, s in zip(taken_s, seconds, strict=True))
        assert all(a >= b - 1e-12 for a, b in zip(after_s, before_s, strict=True))
        slowed += taken_s != seconds
    assert slowed > 30


def _two_streams(first_us: float, second_us: float, kind: TaskKind) -> LaunchGraph:
    """Return two tasks that one thread issues at once, on a stream each."""
    graph = LaunchGraph("g")
    thread = graph.thread("main")
    for name, us, what in (
        ("compute", first_us, TaskKind.KERNEL),
        ("comm", second_us, kind),
    ):
        stream = graph.stream(name)
        call = graph.task(TaskKind.CALL, thread, stated_s=0.0)
        graph.task(what, stream, issue=call, stated_s=us * 1e-6)
    return graph


def _taken_us(graph: LaunchGraph, one: Demand, other: Demand) -> tuple[float, float]:
    timeline = link_graphs((graph,), FREE)
    taken_s = share(timeline, graph.stated_s, {1: one, 3: other}).taken_s
    return taken_s[1] * 1e6, taken_s[3] * 1e6


def test_two_kernels_that_fill_the_device_each_take_half() -> None:
    """Both run at half their rate until one is done; the other goes on alone."""
    graph = _two_streams(10.0, 4.0, TaskKind.KERNEL)

    assert pytest.approx((14.0, 8.0)) == _taken_us(graph, KERNEL, KERNEL)


def test_a_collective_takes_its_blocks_from_kernels() -> None:
    """While a fifth of the SMs is held, a kernel takes 5/4 as long."""
    graph = _two_streams(10.0, 5.0, TaskKind.COLLECTIVE)
    comm = Demand(held=0.2, urgent=True)

    # 5 us at 4/5 of the rate are 4 us of work; 6 are left.
    assert pytest.approx((11.0, 5.0)) == _taken_us(graph, KERNEL, comm)


def _scheduled_us(
    graphs: tuple[LaunchGraph, ...], demands: dict[int, Demand]
) -> tuple[list[float], list[int]]:
    """Return starts in microseconds, and what decided each."""
    timeline = link_graphs(graphs, FREE)
    seconds = [s for graph in graphs for s in graph.stated_s]
    shared = share(timeline, seconds, demands)
    start_s, _, cause = solve(with_waits(timeline, shared), shared.taken_s)
    return [s * 1e6 for s in start_s], cause


def test_a_collective_waits_for_the_kernel_that_came_first() -> None:
    """Its blocks find room when that one has none left; with priority, at once."""
    graph = _two_streams(10.0, 5.0, TaskKind.COLLECTIVE)
    comm = Demand(held=0.2)

    start_us, cause = _scheduled_us((graph,), {1: KERNEL, 3: comm})
    assert pytest.approx(10.0) == start_us[3]
    assert 1 == cause[3]

    urgent = attrs.evolve(comm, urgent=True)
    start_us, _ = _scheduled_us((graph,), {1: KERNEL, 3: urgent})
    assert 0.0 == start_us[3]


def test_a_collective_waits_for_a_kernel_that_was_issued_later() -> None:
    """What counts is which came first to the device, not to the host."""
    graph = LaunchGraph("g")
    thread, slow = graph.thread("main"), graph.thread("other")
    call = graph.task(TaskKind.CALL, slow, stated_s=3e-6)
    comm = graph.stream("comm")
    first = graph.task(TaskKind.COLLECTIVE, comm, issue=call, stated_s=5e-6)
    call = graph.task(TaskKind.CALL, thread, stated_s=1e-6)
    stream = graph.stream("compute")
    kernel = graph.task(TaskKind.KERNEL, stream, issue=call, stated_s=8e-6)

    start_us, cause = _scheduled_us((graph,), {first: Demand(held=0.2), kernel: KERNEL})

    assert pytest.approx((1.0, 9.0)) == (start_us[kernel], start_us[first])
    assert kernel == cause[first]


def test_a_kernel_right_after_another_comes_before_an_event() -> None:
    """What waits for the end of a kernel finds the next one of its stream there."""
    graph = LaunchGraph("g")
    thread, stream = graph.thread("main"), graph.stream("compute")
    call = graph.task(TaskKind.CALL, thread, stated_s=0.0)
    first = graph.task(TaskKind.KERNEL, stream, issue=call, stated_s=4e-6)
    comm = graph.stream("comm")
    graph.task(TaskKind.WAIT, comm, issue=call, after=(first,), stated_s=0.0)
    sums = graph.task(TaskKind.COLLECTIVE, comm, issue=call, stated_s=5e-6)
    second = graph.task(TaskKind.KERNEL, stream, issue=call, stated_s=7e-6)
    demands = {first: KERNEL, second: KERNEL, sums: Demand(held=0.2)}

    start_us, _ = _scheduled_us((graph,), demands)

    assert pytest.approx((4.0, 11.0)) == (start_us[second], start_us[sums])


def test_all_ranks_wait_for_the_one_without_room() -> None:
    """A kernel on one rank holds up the collective on both."""
    graphs = (LaunchGraph("g"), LaunchGraph("g"))
    for graph, kernel_us in zip(graphs, (8.0, 0.0), strict=True):
        thread, stream = graph.thread("main"), graph.stream("compute")
        call = graph.task(TaskKind.CALL, thread, stated_s=0.0)
        graph.task(TaskKind.KERNEL, stream, issue=call, stated_s=kernel_us * 1e-6)
        comm = graph.stream("comm")
        graph.task(TaskKind.COLLECTIVE, comm, issue=call, group="dp#0", stated_s=4e-6)
    sums = Demand(held=0.5)

    start_us, cause = _scheduled_us(graphs, {1: KERNEL, 2: sums, 5: sums})

    assert pytest.approx((8.0, 8.0)) == (start_us[2], start_us[5])
    assert 1 == cause[2] == cause[5]


def test_kernels_of_high_priority_go_first() -> None:
    """The other kernel stands still until they are done, and takes no memory."""
    graph = _two_streams(10.0, 4.0, TaskKind.KERNEL)
    greedy = Demand(computes=1.0, memory=1.0)
    urgent = attrs.evolve(greedy, urgent=True)

    assert pytest.approx((14.0, 4.0)) == _taken_us(graph, greedy, urgent)
    assert pytest.approx((14.0, 8.0)) == _taken_us(graph, urgent, urgent)


def test_sums_take_longer_beside_kernels_only() -> None:
    """An all-reduce that outlives the kernel beside it does its rest at full rate."""
    graph = _two_streams(3.0, 4.0, TaskKind.COLLECTIVE)

    # 3 us at 2/3 of the rate are 2 us of work; 2 are left.
    comm = Demand(beside=1.5)
    assert pytest.approx((3.0, 5.0)) == _taken_us(graph, KERNEL, comm)
    assert pytest.approx((3.0, 4.0)) == _taken_us(graph, Demand(), comm)


def test_collectives_on_the_same_links_share_them() -> None:
    """Two that each need all links take turns; on links and NICs they do not meet."""
    graph = _two_streams(6.0, 6.0, TaskKind.COLLECTIVE)
    link, network = Demand(link=1.0), Demand(network=1.0)

    assert pytest.approx((12.0, 12.0)) == _taken_us(graph, link, link)
    assert pytest.approx((6.0, 6.0)) == _taken_us(graph, link, network)


def test_who_wants_little_gets_it() -> None:
    """A tenth of the memory is there beside a kernel that wants it all, which waits."""
    little, greedy = Demand(memory=0.1), Demand(memory=1.0)

    assert [1.0, pytest.approx(1 / 0.9)] == slowdowns([little, greedy])


def test_a_collective_goes_on_as_fast_as_its_slowest_member() -> None:
    """A kernel beside one of two members slows both down alike."""
    graphs = (LaunchGraph("g"), LaunchGraph("g"))
    for graph, kernel_us in zip(graphs, (8.0, 0.0), strict=True):
        thread, comm = graph.thread("main"), graph.stream("comm")
        call = graph.task(TaskKind.CALL, thread, stated_s=0.0)
        graph.task(TaskKind.COLLECTIVE, comm, issue=call, group="dp#0", stated_s=4e-6)
        call = graph.task(TaskKind.CALL, thread, stated_s=0.0)
        stream = graph.stream("compute")
        graph.task(TaskKind.KERNEL, stream, issue=call, stated_s=kernel_us * 1e-6)
    timeline = link_graphs(graphs, FREE)
    seconds = [s for graph in graphs for s in graph.stated_s]
    sums = Demand(held=0.5, beside=1.5, urgent=True)

    taken_s = share(timeline, seconds, {1: sums, 3: KERNEL, 5: sums}).taken_s

    assert pytest.approx([0, 6e-6, 0, 11e-6, 0, 6e-6, 0, 0]) == taken_s


@given(SHARES, st.floats(0.1, 1.0))
def test_a_fair_level_uses_up_what_there_is(
    shares: list[float], capacity: float
) -> None:
    """All get what they want, or the level; then all there is is used."""
    level = fair_level(shares, capacity)

    if math.isinf(level):
        assert sum(shares) <= capacity * (1 + 1e-9)
    else:
        assert pytest.approx(capacity) == sum(min(share, level) for share in shares)
