"""stream-schedule and critical-path against a discrete-event simulator."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Sequence

import pytest
from tests.passes.launch_graphs import (
    GAP_S,
    GRAPH_GAP_S,
    LATENCY_S,
    Builder,
    Case,
    Result,
    analyse,
    case_of,
    kernel,
    random_case,
)
from tests.passes.simulator import DeadlockError, Simulator

from perfc.ir import LaunchGraph, TaskKind
from perfc.ir.launch import HOST_KINDS
from perfc.passes.facts import Interval, SegmentKind
from perfc.passes.timing.timeline import ScheduleError, finish_s, solve

BATCH = 100
BATCHES = range(0, 1000, BATCH)


def simulate(case: Case, seconds: Sequence[Sequence[float]] = ()) -> Simulator:
    """Run the simulator, with other durations if they are given."""
    simulator = Simulator(
        case.graphs, seconds or case.seconds, LATENCY_S, GAP_S, GRAPH_GAP_S
    )
    simulator.run()
    return simulator


@functools.cache
def solved(first: int) -> list[tuple[Case, Simulator, Result]]:
    """Simulate and analyse the cases of a batch that do not deadlock."""
    cases: list[tuple[Case, Simulator, Result]] = []
    for seed in range(first, first + BATCH):
        case = random_case(seed)
        try:
            simulator = simulate(case)
        except DeadlockError:
            with pytest.raises(ScheduleError, match="collective"):
                analyse(case)
        else:
            cases.append((case, simulator, analyse(case)))
    return cases


def close(expected: object) -> object:
    """Compare to 1e-9."""
    return pytest.approx(expected, rel=1e-9, abs=1e-18)


@pytest.mark.parametrize("first", BATCHES)
def test_every_task_runs_when_the_simulator_runs_it(first: int) -> None:
    """Starts, ends and the time agree to 1e-9 on random launch graphs."""
    cases = solved(first)
    assert len(cases) > 0.8 * BATCH
    for case, simulator, result in cases:
        flat = case.flat()
        starts = [simulator.start_s[task] for task in flat]
        ends = [simulator.end_s[task] for task in flat]
        assert close(starts) == result.schedule.start_s
        assert close(ends) == result.schedule.end_s
        assert close(max(ends, default=0.0)) == result.path.time_s


@pytest.mark.parametrize("first", BATCHES)
def test_the_last_end_alone_is_that_of_all_ends(first: int) -> None:
    """`finish_s` is the latest end of `solve` to the last bit, of any durations."""
    for seed, (_, _, result) in enumerate(solved(first)):
        draw = random.Random(first + seed)
        duration_s = [s * draw.uniform(0, 2) for s in result.schedule.duration_s]
        _, end_s, _ = solve(result.timeline, duration_s)
        assert max(end_s, default=0.0) == finish_s(result.timeline, duration_s)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000_000, 1_000_000 + 20_000, BATCH))
def test_ten_thousands_of_graphs_run_as_simulated(first: int) -> None:
    """The same on graphs that no other run looks at."""
    test_every_task_runs_when_the_simulator_runs_it(first)


@pytest.mark.parametrize("first", BATCHES)
def test_segments_follow_one_another_and_sum_to_the_time(first: int) -> None:
    """Every segment ends on the float at which the next one starts."""
    for _, _, result in solved(first):
        path = result.path
        bounds = [s.start_s + s.duration_s for s in path.segments]
        starts = [s.start_s for s in path.segments]
        if path.time_s > 0:
            assert [0.0, *bounds] == [*starts, path.time_s]
        assert close(path.time_s) == math.fsum(s.duration_s for s in path.segments)


KINDS = {
    TaskKind.HOST: SegmentKind.HOST,
    TaskKind.CALL: SegmentKind.HOST,
    TaskKind.SYNC: SegmentKind.SYNC,
    TaskKind.KERNEL: SegmentKind.KERNEL,
    TaskKind.COPY: SegmentKind.COPY,
    TaskKind.COLLECTIVE: SegmentKind.COMM,
}


@pytest.mark.parametrize("first", BATCHES)
def test_segments_are_tasks_of_the_simulation_or_lags(first: int) -> None:
    """A segment is a task while it ran, a launch latency or a stream gap."""
    for case, simulator, result in solved(first):
        flat = case.flat()
        for segment in result.path.segments:
            rank, index = flat[segment.task]
            if segment.kind is SegmentKind.LAUNCH:
                assert LATENCY_S == segment.duration_s
            elif segment.kind is SegmentKind.IDLE:
                assert segment.duration_s in {GAP_S, GRAPH_GAP_S}
            else:
                assert KINDS[case.graphs[rank].kind[index]] is segment.kind
                assert close(simulator.start_s[rank, index]) == segment.start_s
                assert case.seconds[rank][index] == segment.duration_s


@pytest.mark.parametrize("first", BATCHES)
def test_the_cause_of_a_start_is_a_task_that_ended_then(first: int) -> None:
    """Between the end of the cause and the start lies nothing but a lag."""
    for case, _, result in solved(first):
        flat, schedule = case.flat(), result.schedule
        for start_s, cause in zip(schedule.start_s, schedule.cause, strict=True):
            if cause < 0:
                assert start_s == 0.0
                continue
            rank, index = flat[cause]
            on_host = case.graphs[rank].kind[index] in HOST_KINDS
            lags_s = {LATENCY_S} if on_host else {GAP_S, GRAPH_GAP_S}
            ends = schedule.end_s[cause]
            assert start_s in {ends, *(ends + lag_s for lag_s in lags_s)}


@pytest.mark.parametrize("first", [0, 500])
def test_slack_is_what_a_task_can_take_longer(first: int) -> None:
    """Longer by its slack, a task changes nothing; by more, the rest shows."""
    more_s = 1e-6
    for case, _, result in solved(first):
        time_s, slack_s = result.path.time_s, result.path.slack_s
        flat = case.flat()
        for number in range(0, len(flat), 7):
            slack = slack_s[number]
            enough = simulate(case, case.slower(flat[number], slack))
            assert close(time_s) == max(enough.end_s.values())
            too_much = simulate(case, case.slower(flat[number], slack + more_s))
            assert close(time_s + more_s) == max(too_much.end_s.values())


@pytest.mark.parametrize("first", BATCHES)
def test_slack_is_zero_on_the_path_and_never_negative(first: int) -> None:
    """Exactly 0 for the tasks of the path, at least 0 for all."""
    for _, _, result in solved(first):
        assert {0.0} >= {result.path.slack_s[s.task] for s in result.path.segments}
        assert min(result.path.slack_s, default=0.0) >= 0.0


def one_rank() -> tuple[Builder, int, int, int]:
    """Return a builder, a thread and two streams."""
    graph = LaunchGraph("g")
    return Builder(graph), graph.thread(), graph.stream("s0"), graph.stream("s1")


def told(result: Result) -> list[tuple[str, int, float]]:
    """Return the path in whole microseconds."""
    return [
        (s.kind.value, s.task, round(s.duration_s * 1e6)) for s in result.path.segments
    ]


def test_the_host_waits_for_the_device_on_the_devices_path() -> None:
    """A synchronisation shows with its own duration only."""
    b, thread, stream, _ = one_rank()
    call = b.host(thread, 4e-6, kind=TaskKind.CALL)
    first = b.device(TaskKind.KERNEL, stream, 20e-6, issue=call)
    second = b.device(TaskKind.COPY, stream, 30e-6)
    b.host(thread, 5e-6, kind=TaskKind.SYNC, after=(first, second))
    result = analyse(case_of(b))
    expected = [
        ("host", 0, 4),
        ("launch", 1, 3),
        ("kernel", 1, 20),
        ("idle", 2, 1),
        ("copy", 2, 30),
        ("sync", 3, 5),
    ]
    assert expected == told(result)


def test_a_record_takes_the_place_of_the_gap() -> None:
    """Only a busy task right after a busy one waits for the stream gap."""
    b, _, stream, _ = one_rank()
    b.device(TaskKind.KERNEL, stream, 20e-6)
    b.device(TaskKind.RECORD, stream)
    b.device(TaskKind.KERNEL, stream, 10e-6)
    b.device(TaskKind.KERNEL, stream, 10e-6)
    assert [
        ("kernel", 0, 20),
        ("kernel", 2, 10),
        ("idle", 3, 1),
        ("kernel", 3, 10),
    ] == (told(analyse(case_of(b))))


def test_a_collective_starts_at_the_last_arrival() -> None:
    """The path of the rank that waits goes on in the rank it waits for."""
    early, late = one_rank(), one_rank()
    early[0].device(TaskKind.COLLECTIVE, early[2], 50e-6, group="all")
    late[0].device(TaskKind.KERNEL, late[2], 7e-6)
    late[0].device(TaskKind.COLLECTIVE, late[2], 10e-6, group="all")
    result = analyse(case_of(early[0], late[0]))
    assert [("kernel", 1, 7), ("idle", 0, 1), ("comm", 0, 50)] == told(result)
    assert close([0.0, 0.0, 40e-6]) == result.path.slack_s


def test_one_rank_may_have_several_members_of_a_collective() -> None:
    """A host that drives two devices joins the collective with both."""
    b, _, first, second = one_rank()
    b.device(TaskKind.KERNEL, second, 7e-6)
    b.device(TaskKind.COLLECTIVE, first, 10e-6, group="all")
    b.device(TaskKind.COLLECTIVE, second, 10e-6, group="all")
    result = analyse(case_of(b))
    assert close([0.0, 8e-6, 8e-6]) == result.schedule.start_s


def opposite(*, one_stream: bool) -> Case:
    """Two ranks that issue two collectives in opposite order."""
    builders: list[Builder] = []
    for order in ("xy", "yx"):
        b, _, first, second = one_rank()
        streams = {"x": first, "y": first if one_stream else second}
        for name in order:
            b.device(TaskKind.COLLECTIVE, streams[name], 10e-6, group=name)
        builders.append(b)
    return case_of(*builders)


def test_opposite_order_on_different_streams_is_no_deadlock() -> None:
    """Streams do not wait for each other, whatever the order of the table."""
    result = analyse(opposite(one_stream=False))
    assert [0.0] * 4 == result.schedule.start_s


def test_opposite_order_on_one_stream_is_a_deadlock() -> None:
    """The error names the collectives that wait for each other."""
    case = opposite(one_stream=True)
    with pytest.raises(DeadlockError):
        simulate(case)
    with pytest.raises(ScheduleError) as caught:
        analyse(case)
    assert (
        "collectives 'x', 'y' wait for each other; "
        "issue them in the same order on every rank"
    ) == str(caught.value)


def test_only_collectives_of_the_circle_are_named() -> None:
    """Those that merely wait for it are not at fault."""
    one, two = Builder(LaunchGraph("one")), Builder(LaunchGraph("two"))
    for b in (one, two):
        for name in ("shared", "before", "behind"):
            b.graph.stream(name)
    for name, stream in (("v", 2), ("x", 0), ("y", 0), ("w", 1)):
        one.device(TaskKind.COLLECTIVE, stream, 1e-6, group=name)
    two.device(TaskKind.COLLECTIVE, 0, 1e-6, group="y")
    x = two.device(TaskKind.COLLECTIVE, 0, 1e-6, group="x")
    w = two.device(TaskKind.COLLECTIVE, 1, 1e-6, group="w", after=(x,))
    two.device(TaskKind.COLLECTIVE, 2, 1e-6, group="v", after=(x, w))
    with pytest.raises(ScheduleError, match=r"^collectives 'x', 'y' wait"):
        analyse(case_of(one, two))


def test_a_group_named_twice_on_one_stream_waits_for_itself() -> None:
    """The error names the collective and what to do."""
    b, _, stream, _ = one_rank()
    b.device(TaskKind.COLLECTIVE, stream, 1e-6, group="all")
    b.device(TaskKind.COLLECTIVE, stream, 1e-6, group="all")
    with pytest.raises(ScheduleError) as caught:
        analyse(case_of(b))
    assert (
        "collective 'all' waits for itself: one of its tasks cannot start before "
        "another one ends; give every collective its own group"
    ) == str(caught.value)


def test_a_host_task_without_a_duration_is_named() -> None:
    """A host time that is NaN is missing, not 0."""
    b, thread, _, _ = one_rank()
    b.host(thread, 1e-6)
    b.host(thread, math.nan, kind=TaskKind.SYNC)
    with pytest.raises(ScheduleError) as caught:
        analyse(case_of(b))
    assert (
        "task 1 (sync of no op) of @g has no duration; "
        "state one or let a host pass give it one"
    ) == str(caught.value)


def test_a_device_task_without_a_duration_is_named() -> None:
    """A collective with neither kernel nor stated time is an error."""
    b, _, stream, _ = one_rank()
    b.device(TaskKind.COLLECTIVE, stream, math.nan, group="all")
    with pytest.raises(ScheduleError) as caught:
        analyse(case_of(b))
    assert (
        "task 0 (collective of no op) of @g has no duration; "
        "state one or give it a kernel that a cost model prices"
    ) == str(caught.value)


@pytest.mark.parametrize("seconds", [math.inf, -1e-6])
def test_a_duration_that_cannot_be_is_refused(seconds: float) -> None:
    """The error says what the cost model said."""
    b, _, stream, _ = one_rank()
    b.graph.intern(kernel(0))
    b.device(TaskKind.KERNEL, stream, seconds, kernel=0)
    with pytest.raises(ScheduleError) as caught:
        analyse(case_of(b, kernels_s=[seconds]))
    assert (
        f"task 0 (kernel of no op) of @g has a duration of {seconds} s; "
        "expected a finite one that is not negative"
    ) == str(caught.value)


def test_a_stated_duration_wins() -> None:
    """Over host times and estimates alike; a stated 0 is 0."""
    b, thread, stream, _ = one_rank()
    b.graph.intern(kernel(0))
    b.host(thread, 5e-6)
    b.device(TaskKind.KERNEL, stream, 6e-6, kernel=0)
    b.graph.stated_s[:] = [0.0, 1e-6]
    result = analyse(case_of(b, kernels_s=[6e-6]))
    assert [0.0, 1e-6] == result.schedule.duration_s


def test_a_graph_without_tasks_takes_no_time() -> None:
    """Its path is empty, and its interval is a point."""
    result = analyse(case_of(Builder(LaunchGraph("empty"))))
    assert (0.0, (), []) == (
        result.path.time_s,
        result.path.segments,
        result.path.slack_s,
    )
    assert Interval(0.0, 0.0, 0.0) == result.interval


def test_a_rank_without_tasks_does_not_delay_the_others() -> None:
    """Flat numbers skip it."""
    b, _, stream, _ = one_rank()
    b.device(TaskKind.KERNEL, stream, 5e-6)
    result = analyse(case_of(Builder(LaunchGraph("empty")), b))
    assert (0, 0) == result.schedule.offsets
    assert 5e-6 == result.path.time_s
