"""The pace of input pipelines: formulas against a simulation, event by event."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.passes.loading import Loading, Stage, best_chunks, chunked_s

_BATCHES, _LAST = 4000, 2000


def _simulated_us(loading: Loading, step_us: float) -> float:
    """Return the mean time between the ends of steps, once the first are through.

    Batches go through the stages in order, then the step; buffers between them are
    large. Each stage has `min(workers, depth)` places, each resource as many servers as
    it has, and who is ready first goes first, later stages before earlier ones.
    """
    stages = [*loading.stages, Stage("step", step_us, "gpu")]
    servers: Mapping[str, float] = {
        "h2d": 1,
        "gpu": 1,
        "cores": math.inf if loading.cores is None else loading.cores,
    }
    free, places = dict(servers), [min(s.workers, s.depth) for s in stages]
    waiting: list[list[int]] = [list(range(_BATCHES))[::-1], *([] for _ in stages[1:])]
    ends: list[float] = []
    events: list[tuple[float, int, int]] = []
    now = 0.0

    def start() -> None:
        for number in reversed(range(len(stages))):
            resource = stages[number].resource
            while waiting[number] and places[number] and free[resource]:
                places[number] -= 1
                free[resource] -= 1
                batch = waiting[number].pop()
                heapq.heappush(events, (now + stages[number].time_us, number, batch))

    start()
    while events:
        now, number, batch = heapq.heappop(events)
        places[number] += 1
        free[stages[number].resource] += 1
        if number + 1 < len(stages):
            waiting[number + 1].insert(0, batch)
        else:
            ends.append(now)
        start()
    return (ends[-1] - ends[-1 - _LAST]) / _LAST


_PIPELINES: Sequence[tuple[Loading, float]] = [
    (Loading((Stage("a", 70.0, "cores"),)), 100.0),
    (Loading((Stage("a", 170.0, "cores"),)), 100.0),
    (Loading((Stage("a", 400.0, "cores", 4, 4), Stage("b", 90.0, "h2d"))), 80.0),
    (Loading((Stage("a", 400.0, "cores", 4, 2), Stage("b", 90.0, "h2d"))), 80.0),
    (Loading((Stage("a", 60.0, "h2d", 2, 2), Stage("b", 70.0, "h2d", 2, 2))), 100.0),
    (Loading((Stage("a", 60.0, "gpu"), Stage("b", 10.0, "cores"))), 100.0),
    (Loading((Stage("a", 50.0, "cores", 8, 8), Stage("b", 30.0, "gpu"))), 5.0),
    (Loading((Stage("a", 300.0, "cores", 8, 8),), cores=2), 100.0),
    (Loading((Stage("a", 0.0, "cores"), Stage("b", 0.0, "h2d"))), 3.0),
]


@pytest.mark.parametrize(("loading", "step_us"), _PIPELINES)
def test_a_simulation_agrees(loading: Loading, step_us: float) -> None:
    """The steady state is that of the slowest, to 1e-6."""
    found = loading.iteration_us(step_us)

    assert _simulated_us(loading, step_us) == pytest.approx(found, rel=1e-6)


_STAGES = st.builds(
    Stage,
    st.just("s"),
    st.floats(0, 1e6),
    st.sampled_from(["cores", "h2d", "gpu"]),
    st.integers(1, 64),
    st.integers(1, 64),
)
_LOADINGS = st.builds(
    Loading,
    st.lists(_STAGES, min_size=1, max_size=4).map(
        lambda listed: tuple(
            Stage(f"s{n}", s.time_us, s.resource, s.workers, s.depth)
            for n, s in enumerate(listed)
        )
    ),
    st.booleans(),
    st.none() | st.integers(1, 64),
)


@given(_LOADINGS, st.floats(0, 1e6))
def test_what_hiding_can_do(loading: Loading, step_us: float) -> None:
    """Overlapped is no slower than serial, and no faster than the step or a stage."""
    serial = loading.iteration_us(step_us, overlapped=False)
    hidden = loading.iteration_us(step_us, overlapped=True)

    assert step_us <= hidden <= serial * (1 + 1e-12)
    assert max(stage.pace_us for stage in loading.stages) <= hidden
    assert serial == pytest.approx(step_us + loading.serial_us)


@given(_LOADINGS, st.floats(0, 1e6), st.floats(1, 100))
def test_a_faster_stage_never_slows(
    loading: Loading, step_us: float, times: float
) -> None:
    """Nor does it save more than its time."""
    before = loading.iteration_us(step_us)
    for stage in loading.stages:
        after = loading.with_faster(stage.name, times).iteration_us(step_us)
        assert before - stage.time_us * (1 + 1e-9) - 1e-9 <= after
        assert after <= before * (1 + 1e-12)


_PARTS = st.lists(st.floats(1e-6, 1), min_size=3, max_size=3)


@given(_PARTS, st.floats(1e-6, 1e-2))
def test_the_best_number_of_chunks(parts: list[float], overhead: float) -> None:
    """No other number is better, and the gain is at most three."""
    best = best_chunks(parts, overhead)
    taken = chunked_s(parts, best, overhead)

    for other in (*range(1, 30), max(best - 1, 1), best + 1, 2 * best):
        assert taken <= chunked_s(parts, other, overhead) * (1 + 1e-9)
    assert sum(parts) / taken <= sum(parts) / max(parts) * (1 + 1e-9) <= 3 + 1e-6


def test_chunks_by_hand() -> None:
    """Of 4 + 5 + 3, with 0.5 a chunk: 7 hidden, so about sqrt(14) chunks."""
    assert 4 == best_chunks((4.0, 5.0, 3.0), 0.5)
    assert chunked_s((4.0, 5.0, 3.0), 4, 0.5) == 3.0 + 0.75 * 5.0 + 2.0
    assert 1 == best_chunks((0.0, 5.0, 0.0), 0.5)


def _chunks_simulated(parts: Sequence[float], chunks: int) -> float:
    """Let chunks follow each other through three engines."""
    ends = [0.0] * len(parts)
    for _ in range(chunks):
        before = 0.0
        for engine, part in enumerate(parts):
            before = ends[engine] = max(before, ends[engine]) + part / chunks
    return ends[-1]


@pytest.mark.parametrize("parts", [(4.0, 5.0, 3.0), (9.0, 1.0, 2.0), (1.0, 1.0, 1.0)])
@pytest.mark.parametrize("chunks", [1, 2, 7])
def test_chunks_simulated(parts: Sequence[float], chunks: int) -> None:
    """The formula is what engines do that take chunks in turn."""
    found = chunked_s(parts, chunks, 0.0)

    assert _chunks_simulated(parts, chunks) == pytest.approx(found, rel=1e-9)
