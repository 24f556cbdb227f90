"""Pipelines on unequal stages and links: the formula, and an event simulation of it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.planning.networks import (
    StageTimes,
    completion_s,
    flow_s,
    ordered_step_s,
    stage_runs,
    step_s,
)

_TIMES = st.floats(0.001, 10.0)
_STAGE = st.builds(
    StageTimes,
    forward_s=_TIMES,
    backward_s=_TIMES,
    sent_s=st.floats(0.0, 10.0),
    returned_s=st.floats(0.0, 10.0),
    tail_s=st.floats(0.0, 10.0),
)


def _simulated(stages: list[StageTimes], count: int) -> float:
    """Follow every microbatch through all stages and links, forward, then back."""
    free: dict[tuple[str, int], float] = {}

    def run(where: tuple[str, int], ready: float, taken: float) -> float:
        free[where] = max(free.get(where, 0.0), ready) + taken
        return free[where]

    last = len(stages) - 1
    arrived: list[float] = []
    for _ in range(count):
        ready = 0.0
        for number, stage in enumerate(stages):
            ready = run(("gpu", number), ready, stage.forward_s)
            if number < last:
                ready = run(("up", number), ready, stage.sent_s)
        arrived.append(ready)
    for arrival in arrived:
        ready = arrival
        for number in range(last, -1, -1):
            ready = run(("gpu", number), ready, stages[number].backward_s)
            if number:
                link = stages[number - 1].returned_s
                ready = run(("down", number), ready, link)
    return max(free["gpu", n] + stage.tail_s for n, stage in enumerate(stages))


@given(st.lists(_STAGE, min_size=1, max_size=8), st.integers(1, 9))
def test_all_forward_then_all_backward_is_what_events_say(
    stages: list[StageTimes], count: int
) -> None:
    """The formula is the time at which the last event ends."""
    assert step_s(stages, count) == pytest.approx(_simulated(stages, count), rel=1e-9)


@given(st.lists(_STAGE, min_size=1, max_size=6), st.integers(1, 9))
def test_1f1b_takes_no_less_than_its_slowest_stage(
    stages: list[StageTimes], count: int
) -> None:
    """Every stage has all microbatches, and the first way is through all of them."""
    found = ordered_step_s(stages, count, "1f1b")

    assert found >= max((s.forward_s + s.backward_s) * count for s in stages) - 1e-9
    links = sum(s.sent_s + s.returned_s for s in stages[:-1])
    assert found >= sum(s.forward_s + s.backward_s for s in stages) + links - 1e-9


def test_one_microbatch_in_turn_is_all_forward_then_all_backward() -> None:
    """There is nothing to order."""
    stages = [StageTimes(forward_s=1, backward_s=2, sent_s=3, returned_s=4)] * 3

    assert ordered_step_s(stages, 1, "1f1b") == step_s(stages, 1)


def test_microbatches_follow_the_slowest() -> None:
    """Stages of 1, 3 and 1 s with links of 2 s: 9 s, and 3 s for each of 4 more."""
    assert flow_s([1, 3, 1], [2, 2], 5) == pytest.approx(9 + 4 * 3)


@pytest.mark.parametrize(
    ("sequential_s", "parts", "communication_s", "expected_s"),
    [(29936.082652, 4, 3.425068, 7487.445731), (10.0, 1, 0.0, 10.0)],
)
def test_completion(
    sequential_s: float, parts: int, communication_s: float, expected_s: float
) -> None:
    """Work in equal parts, and what is communicated after it."""
    found = completion_s(sequential_s, parts, communication_s)

    assert found == pytest.approx(expected_s)


@given(
    st.lists(_STAGE, min_size=1, max_size=6),
    st.integers(1, 7),
    st.sampled_from(["gpipe", "1f1b"]),
)
def test_runs_of_stages_make_the_step(
    stages: list[StageTimes], count: int, schedule: str
) -> None:
    """The last run ends with the step; no stage and no link does two things at once."""
    runs = stage_runs(stages, count, schedule)
    lanes: dict[tuple[int, bool, bool], list[tuple[float, float]]] = {}
    for run in runs:
        way = run.backward if run.link else False
        lanes.setdefault((run.stage, run.link, way), []).append(
            (run.start_s, run.end_s)
        )

    step = ordered_step_s(stages, count, schedule)
    assert step == pytest.approx(max(run.end_s for run in runs), rel=1e-9)
    for lane in lanes.values():
        spans = sorted(lane)
        for (_, end), (begin, _) in pairwise(spans):
            assert begin >= end
    assert 2 * count + 1 == len(lanes[0, False, False])


def test_inference_runs_forward_alone() -> None:
    """Without a backward pass nothing comes back."""
    stages = [StageTimes(forward_s=1.0, sent_s=0.5), StageTimes(forward_s=2.0)]

    runs = stage_runs(stages, 2, "gpipe")

    assert [0.0, 1.0] == [r.start_s for r in runs if r.stage == 0 and not r.link][:2]
    assert not [r for r in runs if r.backward and r.microbatch >= 0]
