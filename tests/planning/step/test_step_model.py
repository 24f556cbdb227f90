"""Steps as tens of tasks: as long as the schedule of all of them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.ir import Kernel, LaunchGraph, Record, TaskKind, Work
from perfc.passes.timing import TimeConstants, link_graphs, solve
from perfc.planning.step import StepModel, reduce_timeline

_CONSTANTS = TimeConstants(stream_gap_s=1e-6, graph_gap_s=1e-6, launch_latency_s=3e-6)


def _graph(seed: int, count: int, most: int = 2) -> tuple[LaunchGraph, list[float]]:
    """Calls on a thread that launch kernels on streams, with waits between them."""
    chance, graph = random.Random(seed), LaunchGraph("step")
    thread = graph.thread()
    streams = [graph.stream(f"s{number}") for number in range(most)]
    kernel = graph.intern(Kernel("test.op", "fp32", "fp32", Record({}), Work(0, 0, 0)))
    seconds: list[float] = []
    kernels: list[int] = []
    for _ in range(count):
        call = graph.task(TaskKind.CALL, thread, detail="cudaLaunchKernel")
        after = tuple(sorted({chance.choice(kernels)})) if kernels else ()
        task = graph.task(
            TaskKind.KERNEL,
            chance.choice(streams),
            kernel=kernel,
            issue=call,
            after=after if chance.random() < 0.3 else (),
        )
        kernels.append(task)
        seconds += [chance.uniform(1e-6, 2e-5), chance.uniform(1e-6, 4e-5)]
    return graph, seconds


@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 40),
    kept=st.integers(0, 12),
    other=st.integers(0, 10**6),
)
def test_as_long_as_the_schedule(seed: int, count: int, kept: int, other: int) -> None:
    """Whatever the tasks that are kept take, the step is what `solve` says."""
    graph, seconds = _graph(seed, count)
    timeline = link_graphs((graph,), _CONSTANTS)
    chance = random.Random(other)
    stops = sorted(chance.sample(range(len(graph)), min(kept, len(graph))))
    model = reduce_timeline(timeline, seconds, stops, frozenset())
    changed = {stop: chance.uniform(0.0, 1e-4) for stop in stops}
    durations = [changed.get(task, own) for task, own in enumerate(seconds)]
    _, end_s, _ = solve(timeline, durations)

    found = model.step_s([np.full((1, 1), changed[stop]) for stop in stops])
    assert max(end_s) == pytest.approx(float(found[0]))
    unchanged = model.step_s([np.full((1, 1), stop.duration_s) for stop in model.stops])
    _, before_s, _ = solve(timeline, seconds)
    assert max(before_s) == pytest.approx(float(unchanged[0]))


def test_ranks_meet_at_collectives() -> None:
    """A rank that is late holds up the others where they meet, and only there."""
    graph, seconds = _graph(1, 6, most=1)
    timeline = link_graphs((graph,), _CONSTANTS)
    stops = [1, 5, 9]
    durations = [np.array([[1e-5, 9e-5]]), np.array([[2e-5]]), np.array([[8e-5, 1e-5]])]

    def model(*meetings: int) -> StepModel:
        return reduce_timeline(timeline, seconds, stops, frozenset(meetings))

    def alone(rank: int) -> float:
        own = [d[:, rank : rank + 1] if d.shape[1] > 1 else d for d in durations]
        return float(model().step_s(own)[0])

    apart, together = model().step_s(durations)[0], model(5).step_s(durations)[0]
    assert max(alone(0), alone(1)) == pytest.approx(float(apart))
    assert together > apart


def test_many_plans_at_once() -> None:
    """Plans priced together are priced as each alone."""
    graph, seconds = _graph(2, 20)
    timeline = link_graphs((graph,), _CONSTANTS)
    stops = [1, 7, 13, 21]
    model = reduce_timeline(timeline, seconds, stops, frozenset([7]))
    chance = np.random.default_rng(0)
    durations = [chance.uniform(0, 1e-4, (50, 4)) for _ in stops]

    together = model.step_s(durations)
    one_by_one = [model.step_s([d[n : n + 1] for d in durations])[0] for n in range(50)]
    assert one_by_one == together.tolist()
