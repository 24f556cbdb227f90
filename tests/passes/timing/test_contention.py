"""Kernels of several streams that compete for the SMs."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.passes.launch_graphs import GAP_S, GRAPH_GAP_S, LATENCY_S, Case, random_case

from perfc.ir import LaunchGraph, TaskKind
from perfc.passes import Timeline
from perfc.passes.timing import TimeConstants, link_graphs, solve, solve_contended
from perfc.passes.timing.timeline import ScheduleError

CONSTANTS = TimeConstants(GAP_S, GRAPH_GAP_S, LATENCY_S)
FREE = TimeConstants(0.0, 0.0, 0.0)


def _linked(first: int) -> Iterator[tuple[Case, Timeline, list[float]]]:
    for seed in range(first, first + 100):
        case = random_case(seed)
        seconds = [s for rank in case.seconds for s in rank]
        try:
            yield case, link_graphs(tuple(case.graphs), CONSTANTS), seconds
        except ScheduleError:
            continue


def _kernels(timeline: Timeline) -> list[tuple[int, tuple[int, int]]]:
    return [
        (first + task, (rank, graph.resources[graph.resource[task]].device))
        for rank, (graph, first) in enumerate(
            zip(timeline.graphs, timeline.offsets, strict=True)
        )
        for task, kind in enumerate(graph.kind)
        if kind is TaskKind.KERNEL
    ]


@pytest.mark.parametrize("first", [0, 100, 200])
def test_with_room_for_all_it_is_the_schedule(first: int) -> None:
    """Starts and ends are those of `solve` where no kernel leaves others no room."""
    for _, timeline, seconds in _linked(first):
        start_s, end_s, _ = solve(timeline, seconds)
        found = solve_contended(timeline, seconds, {})

        assert pytest.approx(start_s, rel=1e-12) == found[0]
        assert pytest.approx(end_s, rel=1e-12) == found[1]


@pytest.mark.parametrize("first", [300, 400, 500])
def test_no_kernel_starts_where_there_is_no_room(first: int) -> None:
    """But urgent ones; the others wait, and nothing starts before it could."""
    waiting = 0
    for case, timeline, seconds in _linked(first):
        chosen = random.Random(first)
        kernels = _kernels(timeline)
        full_s = {t: 0.7 * seconds[t] for t, _ in kernels if chosen.random() < 0.5}
        urgent = {t for t, _ in kernels if chosen.random() < 0.2}

        start_s, end_s, cause = solve_contended(timeline, seconds, full_s, urgent)

        for full, place in kernels:
            if full not in full_s:
                continue
            room_s = start_s[full] + full_s[full]
            for task, at in kernels:
                if at == place and task not in urgent and start_s[task] > start_s[full]:
                    assert start_s[task] >= room_s - 1e-15
                    waiting += cause[task] == full and start_s[task] == room_s
        assert [s + d for s, d in zip(start_s, seconds, strict=True)] == end_s
        alone, _, _ = solve(timeline, seconds)
        assert case.graphs
        assert min(s - a for s, a in zip(start_s, alone, strict=True)) > -1e-12
    assert waiting > 0


def _two_streams() -> LaunchGraph:
    graph = LaunchGraph("two")
    thread = graph.thread()
    for name in ("s0", "s1"):
        stream = graph.stream(name)
        call = graph.task(TaskKind.CALL, thread, stated_s=1e-6)
        graph.task(TaskKind.KERNEL, stream, issue=call, stated_s=10e-6)
    return graph


@pytest.mark.parametrize(
    ("urgent", "start_us", "cause"), [((), 9.0, 1), ((3,), 2.0, 2)]
)
def test_the_last_wave_leaves_room(
    urgent: tuple[int, ...], start_us: float, cause: int
) -> None:
    """A kernel begins when the other one has no more blocks to hand out."""
    graph = _two_streams()
    timeline = link_graphs((graph,), FREE)

    found = solve_contended(timeline, graph.stated_s, {1: 8e-6}, urgent)

    assert start_us == pytest.approx(found[0][3] * 1e6)
    assert cause == found[2][3]
