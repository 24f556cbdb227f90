"""Kernels of several streams that compete for the SMs."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.passes.launch_graphs import GAP_S, GRAPH_GAP_S, LATENCY_S, Case, random_case

from perfc.ir import LaunchGraph, TaskKind
from perfc.passes import Timeline
from perfc.passes.timing import (
    Competition,
    TimeConstants,
    link_graphs,
    solve,
    solve_contended,
)
from perfc.passes.timing.timeline import ScheduleError

CONSTANTS = TimeConstants(GAP_S, GRAPH_GAP_S, LATENCY_S)
FREE = TimeConstants(0.0, 0.0, 0.0)
ROOM = Competition(lambda _kernel, _other: 0.0)


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
        found = solve_contended(timeline, seconds, ROOM)

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

        came_s = [chosen.random() for _ in seconds]
        tie_s = chosen.choice((0.0, 5e-6))

        def filled_s(kernel: int, _: int, own: dict[int, float] = full_s) -> float:
            return own.get(kernel, 0.0)

        full = Competition(filled_s, urgent, came_s, tie_s)
        start_s, end_s, cause = solve_contended(timeline, seconds, full)

        for filled, place in kernels:
            if filled not in full_s:
                continue
            room_s = start_s[filled] + full_s[filled]
            for task, at in kernels:
                if (
                    at == place
                    and task not in urgent
                    and start_s[task] > start_s[filled]
                ):
                    assert start_s[task] >= room_s - 1e-15
                    waiting += cause[task] == filled and start_s[task] == room_s
        assert [s + d for s, d in zip(start_s, seconds, strict=True)] == end_s
        alone, _, _ = solve(timeline, seconds)
        assert case.graphs
        assert min(s - a for s, a in zip(start_s, alone, strict=True)) > -1e-12
    assert waiting > 0


def _two_streams(*kinds: TaskKind) -> LaunchGraph:
    graph = LaunchGraph("two")
    thread = graph.thread()
    for number, kind in enumerate(kinds or (TaskKind.KERNEL, TaskKind.KERNEL)):
        stream = graph.stream(f"s{number}")
        call = graph.task(TaskKind.CALL, thread, stated_s=1e-6)
        group = "c" if kind is TaskKind.COLLECTIVE else ""
        graph.task(kind, stream, issue=call, stated_s=10e-6, group=group)
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

    full = Competition(lambda kernel, _: {1: 8e-6}.get(kernel, 0.0), urgent)

    found = solve_contended(timeline, graph.stated_s, full)

    assert start_us == pytest.approx(found[0][3] * 1e6)
    assert cause == found[2][3]


FIRST, SECOND = 1, 3
"""The tasks of the two streams; they are ready after 1 and 2 us."""


def _starts_us(graph: LaunchGraph, competition: Competition) -> tuple[float, float]:
    timeline = link_graphs((graph,), FREE)
    start_s, _, _ = solve_contended(timeline, graph.stated_s, competition)
    return start_s[FIRST] * 1e6, start_s[SECOND] * 1e6


@pytest.mark.parametrize(
    ("kinds", "second_us"),
    [
        ((TaskKind.KERNEL, TaskKind.COLLECTIVE), 9.0),
        ((TaskKind.COLLECTIVE, TaskKind.KERNEL), 2.0),
        ((TaskKind.KERNEL, TaskKind.COPY), 2.0),
    ],
)
def test_collectives_wait_and_are_not_waited_for(
    kinds: tuple[TaskKind, ...], second_us: float
) -> None:
    """They hold few SMs, but find no room either; copies have engines of their own."""
    competition = Competition(lambda _kernel, _other: 8e-6)

    found = _starts_us(_two_streams(*kinds), competition)

    assert pytest.approx((1.0, second_us)) == found


@pytest.mark.parametrize(
    ("tie_us", "came", "starts_us"),
    [
        (0.5, (5.0, 4.0), (1.0, 9.0)),  # they do not come at one time
        (1.5, (5.0, 4.0), (10.0, 2.0)),
        (1.5, (4.0, 5.0), (1.0, 9.0)),
    ],
)
def test_who_came_first_comes_first_again(
    tie_us: float, came: tuple[float, float], starts_us: tuple[float, float]
) -> None:
    """Where rivals come at almost one time, as they did where it is known."""
    came_s = [0.0, came[0], 0.0, came[1]]
    competition = Competition(
        lambda _kernel, _other: 8e-6, came_s=came_s, tie_s=tie_us * 1e-6
    )

    assert pytest.approx(starts_us) == _starts_us(_two_streams(), competition)


def test_who_leaves_room_is_no_rival() -> None:
    """Nobody gives way to a kernel beside which there is room."""
    competition = Competition(
        lambda _kernel, _other: 0.0, came_s=[0.0, 5.0, 0.0, 4.0], tie_s=1.0
    )

    assert pytest.approx((1.0, 2.0)) == _starts_us(_two_streams(), competition)
