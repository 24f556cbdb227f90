"""Rank classes that meet in collectives: one joint schedule."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.passes.launch_graphs import GAP_S, Builder, Case, Result, analyse, estimate

from perfc.ir import LaunchGraph, TaskKind

MEETINGS = 4
Seconds = tuple[float, ...]

_seconds = st.floats(1e-6, 1e-3)
_computing = st.tuples(*[_seconds] * (MEETINGS + 1))
_collectives = st.tuples(*[_seconds] * MEETINGS)


def step(computing: Seconds, collectives: Seconds) -> Builder:
    """Return a rank that computes, and reduces in between on another stream.

    What it computes next does not wait for the collective; the last kernel waits for
    all of them.
    """
    builder = Builder(LaunchGraph("step"))
    compute, comm = builder.graph.stream("compute"), builder.graph.stream("comm")
    last = -1
    for number, seconds in enumerate(computing[:-1]):
        kernel = builder.device(TaskKind.KERNEL, compute, seconds)
        builder.device(TaskKind.WAIT, comm, after=(kernel,))
        last = builder.device(
            TaskKind.COLLECTIVE, comm, collectives[number], group=f"dp#{number}"
        )
    builder.device(TaskKind.WAIT, compute, after=(last,))
    builder.device(TaskKind.KERNEL, compute, computing[-1])
    return builder


def joint(ranks: Sequence[Seconds], collectives: Seconds) -> tuple[Case, Result]:
    """Schedule ranks that meet."""
    builders = [step(computing, collectives) for computing in ranks]
    case = Case(
        tuple(builder.hosted() for builder in builders),
        tuple(estimate(()) for _ in builders),
        tuple(builder.seconds for builder in builders),
    )
    return case, analyse(case)


def meetings(case: Case, result: Result) -> list[list[tuple[float, float]]]:
    """Return start and end of each collective, on every rank."""
    found: list[list[tuple[float, float]]] = [[] for _ in range(MEETINGS)]
    for place, (rank, task) in enumerate(case.flat()):
        group = case.graphs[rank].group[task]
        if group:
            times = result.schedule.start_s[place], result.schedule.end_s[place]
            found[int(group.partition("#")[2])].append(times)
    return found


@settings(max_examples=25)
@given(_computing, _collectives, st.integers(2, 5))
def test_identical_ranks_are_simulated_once(
    computing: Seconds, collectives: Seconds, count: int
) -> None:
    """Ranks that run the same end when one of them alone would."""
    _, one = joint([computing], collectives)
    _, all_ = joint([computing] * count, collectives)

    assert list(one.schedule.start_s) * count == list(all_.schedule.start_s)
    assert one.path.time_s == all_.path.time_s


@settings(max_examples=25)
@given(st.lists(_computing, min_size=2, max_size=4), _collectives)
def test_a_collective_starts_when_the_last_rank_arrives(
    ranks: list[Seconds], collectives: Seconds
) -> None:
    """All start together, nobody before it can, and somebody as soon as it can."""
    case, result = joint(ranks, collectives)
    ready_s = [0.0] * len(ranks)
    done_s = 0.0
    for number, times in enumerate(meetings(case, result)):
        gap_s = GAP_S if number else 0.0
        computed = zip(ready_s, ranks, strict=True)
        ready_s = [ready + gap_s + rank[number] for ready, rank in computed]
        (start_s,) = {start_s for start_s, _ in times}
        assert start_s == pytest.approx(max(*ready_s, done_s), rel=1e-9)
        done_s = times[0][1]


@settings(max_examples=25)
@given(
    st.lists(_computing, min_size=2, max_size=4),
    _collectives,
    st.integers(0, MEETINGS - 1),
    _seconds,
)
def test_a_slower_rank_delays_all(
    ranks: list[Seconds], collectives: Seconds, place: int, more_s: float
) -> None:
    """No task of any rank runs earlier; after the next meeting all come with it."""
    slower = tuple(s + more_s * (n == place) for n, s in enumerate(ranks[0]))
    case, before = joint(ranks, collectives)
    _, after = joint([slower, *ranks[1:]], collectives)

    pairs = zip(before.schedule.start_s, after.schedule.start_s, strict=True)
    assert all(late >= early - 1e-12 for early, late in pairs)
    arrival_s = sum(slower[: place + 1])
    for number, times in enumerate(meetings(case, after)):
        if number >= place:
            assert all(start_s >= arrival_s for start_s, _ in times)


def test_the_critical_path_crosses_ranks() -> None:
    """What a fast rank waits for is the slow rank's: its kernel is on the path."""
    fast, slow = (1e-6,) * (MEETINGS + 1), (1e-3, *(1e-6,) * MEETINGS)
    case, result = joint([fast, slow], (1e-5,) * MEETINGS)

    places = [case.flat()[task] for task in result.path.tasks]
    assert {0, 1} == {rank for rank, _ in places}
    assert (1, 0) == places[0]
