"""The pace of input pipelines: formulas against a simulation, event by event."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.passes.loading import Loading, Stage

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
