"""What strategies cost, and how they are ranked."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.passes.parallel.pipeline.chunk_cuts import ChunkSteps
from perfc.passes.parallel.pipeline.microbatches import steps_of
from perfc.planning.strategies import (
    Objective,
    Strategy,
    StrategyPrice,
    least_interleaved_s,
    least_memory,
    least_share,
    least_step_s,
)

_BYTES = st.floats(0, 1e3)

PRICE = StrategyPrice(
    strategy=Strategy(replicas=8),
    samples=80,
    step_s=0.5,
    low_s=0.4,
    high_s=0.7,
    exposed_s=0.1,
    bubble_s=0.0,
    shares={"host": 0.1, "compute": 0.6, "memory": 0.2, "network": 0.1},
    parameters_bytes=10.0,
    peak_bytes=30.0,
    limit_bytes=40.0,
)


def test_what_is_derived() -> None:
    """Samples a second, money by GPU hours, memory that is missing."""
    assert 160 == PRICE.samples_per_s
    # 8 GPUs x 0.5 s x 3.6 $/h = 0.004 $ for 80 samples
    assert 50 == pytest.approx(PRICE.usd_per_million(3.6))
    assert 0 == PRICE.missing_bytes
    assert 5 == attrs.evolve(PRICE, limit_bytes=25.0).missing_bytes


def test_what_bounds_a_step() -> None:
    """The largest part; what others wait for each other is none of theirs."""
    assert "compute" == PRICE.bound
    assert "compute" == attrs.evolve(PRICE, bubble_s=0.15).bound
    assert "bubble" == attrs.evolve(PRICE, bubble_s=0.25).bound


def test_objectives_differ() -> None:
    """More GPUs are faster, fewer cheaper, stages smaller."""
    many = attrs.evolve(PRICE, strategy=Strategy(replicas=16), step_s=0.3)
    small = attrs.evolve(
        PRICE, strategy=Strategy(replicas=4, stages=2), step_s=0.9, peak_bytes=20.0
    )

    for name, best in (("throughput", many), ("price", PRICE), ("memory", small)):
        assert best is Objective(name).ranked((PRICE, many, small))[0]


def test_what_does_not_fit_comes_last() -> None:
    """However fast it is; what lacks least comes first of these."""
    large = attrs.evolve(PRICE, step_s=0.1, peak_bytes=60.0)
    larger = attrs.evolve(PRICE, step_s=0.01, peak_bytes=70.0)

    for name in ("throughput", "price", "memory"):
        ranked = Objective(name).ranked((larger, large, PRICE))
        assert [PRICE, large, larger] == ranked


def test_equals_are_ranked_by_name() -> None:
    """So that the order is always the same, whatever the last digits say."""
    step_s = PRICE.step_s * (1 + 1e-15)
    named = [
        attrs.evolve(PRICE, strategy=Strategy(replicas=2, tensor=4), step_s=step_s),
        attrs.evolve(PRICE, strategy=Strategy(replicas=4, tensor=2)),
    ]

    for order in (named, named[::-1]):
        assert named == Objective("throughput").ranked(order)


@given(
    st.lists(
        st.tuples(st.floats(0.01, 10), st.floats(0.01, 10)), min_size=1, max_size=6
    ),
    st.integers(1, 9),
    st.sampled_from(("gpipe", "1f1b")),
    st.booleans(),
)
def test_no_pipeline_is_faster_than_its_bound(
    times: list[tuple[float, float]],
    count: int,
    schedule: str,
    training: bool,
) -> None:
    """However uneven the stages, whose microbatches run one after the other."""
    whole = sum(forward + (backward if training else 0) for forward, backward in times)

    step = _simulated(times, count, schedule, training=training)

    assert step >= whole * least_share(count, len(times)) * (1 - 1e-9)


@given(
    st.lists(st.floats(0.01, 10), min_size=1, max_size=7),
    st.integers(1, 4),
    st.integers(1, 6),
)
def test_no_cut_is_faster_than_the_bound_of_layers(
    layers: list[float], stages: int, count: int
) -> None:
    """Of all ways to cut, none is; and the best of them by its sums takes no more."""
    least = least_step_s(layers, count, stages)

    sums: list[float] = []
    for cut in combinations(range(1, len(layers)), min(stages, len(layers)) - 1):
        parts = list(pairwise((0, *cut, len(layers))))
        times = [sum(layers[first:end]) for first, end in parts]
        step = _simulated([(0.0, t) for t in times], count, "gpipe", training=True)
        assert step >= least * (1 - 1e-9)
        sums.append(max(sum(layers[:a]) + count * sum(layers[a:b]) for a, b in parts))
    assert least == pytest.approx(min(sums), rel=1e-6)


def test_stages_without_layers_bound_nothing() -> None:
    """A billion stages are bounded as soon, and by as much, as one for each layer."""
    layers = [1.0, 2.0, 3.0]

    assert least_step_s(layers, 7, len(layers)) == least_step_s(layers, 7, 10**9)


@given(
    st.lists(st.tuples(_BYTES, _BYTES), min_size=1, max_size=6),
    st.integers(1, 9),
    st.sampled_from(("gpipe", "1f1b")),
)
def test_no_stage_needs_less_memory(
    parts: list[tuple[float, float]], count: int, schedule: str
) -> None:
    """However parameters and activations are assigned, one stage needs as much."""
    strategy = Strategy(
        replicas=1, stages=len(parts), microbatches=count, schedule=schedule
    )
    lasting, saved = (sum(column) for column in zip(*parts, strict=True))

    least = least_memory(lasting, saved, strategy.kept)

    needs = [
        own + k * save for (own, save), k in zip(parts, strategy.kept, strict=True)
    ]
    assert max(needs) >= least * (1 - 1e-9)


def test_what_stages_keep() -> None:
    """With 1f1b no more than there are stages from it on."""
    strategy = Strategy(replicas=1, stages=4, microbatches=3)

    assert [3, 3, 2, 1] == strategy.kept
    assert [3, 3, 3, 3] == attrs.evolve(strategy, schedule="gpipe").kept
    assert [1] == Strategy(replicas=8).kept


@given(st.integers(2, 6), st.integers(2, 4), st.integers(1, 3), st.data())
def test_what_chunks_keep(
    stages: int, chunks: int, rounds: int, data: st.DataObject
) -> None:
    """At some time each chunk of a stage keeps as many, of all activations at once."""
    count, stage = rounds * stages, data.draw(st.integers(0, stages - 1))
    strategy = Strategy(
        replicas=1,
        stages=stages,
        microbatches=count,
        schedule="interleaved",
        chunks=chunks,
    )
    waiting, most = Counter[int](), 0
    for step in steps_of(
        "interleaved", stage, stages, count, training=True, chunks=chunks
    ):
        waiting[step.chunk] += -1 if step.backward else 1
        most = max(most, min(waiting[chunk] for chunk in range(chunks)))

    assert 1 <= strategy.kept[stage] <= most


@given(
    st.integers(2, 3),
    st.integers(2, 3),
    st.integers(1, 3),
    st.lists(st.floats(0.01, 10), min_size=9, max_size=12),
    st.data(),
)
def test_no_chunks_are_faster_than_their_bound(
    stages: int,
    chunks: int,
    rounds: int,
    layers: list[float],
    data: st.DataObject,
) -> None:
    """However layers are cut, a third of each being forward."""
    total, count = stages * chunks, rounds * stages
    places = st.integers(1, len(layers) - 1)
    inner = data.draw(st.sets(places, min_size=total - 1, max_size=total - 1))
    cut = pairwise((0, *sorted(inner), len(layers)))
    steps = ChunkSteps.of(stages, chunks, count, training=True)

    step = steps.time([sum(layers[first:end]) / 3 for first, end in cut])

    least = least_interleaved_s(sum(layers), layers, count)
    assert step >= least * (1 - 1e-9)


def test_the_bound_is_reached() -> None:
    """By stages that get faster from one to the next; by one stage, and by one part."""
    stages, count = 4, 5
    times = [(0.0, (1 - 1 / count) ** stage) for stage in range(stages)]
    whole = sum(backward for _, backward in times)

    reached = whole * least_share(count, stages)

    assert count * times[0][1] == pytest.approx(reached)
    assert 7 == pytest.approx(least_share(7, 1))
    assert 1 == pytest.approx(least_share(1, 7))


def _simulated(
    times: list[tuple[float, float]], count: int, schedule: str, *, training: bool
) -> float:
    """Return when the last stage ends: each step waits for its neighbour's."""
    stages = len(times)
    ahead = {"gpipe": [count] * stages, "1f1b": range(stages, 0, -1)}[schedule]
    left = {stage: _steps(ahead[stage], count, training) for stage in range(stages)}
    ends: dict[tuple[int, int, bool], float] = {}
    free = [0.0] * stages
    while any(left.values()):
        for stage, steps in left.items():
            while steps:
                microbatch, backward = steps[0]
                before = _before(stage, stages, microbatch, backward=backward)
                if before is not None and before not in ends:
                    break
                steps.pop(0)
                start = max(free[stage], ends[before] if before else 0.0)
                free[stage] = start + times[stage][backward]
                ends[stage, microbatch, backward] = free[stage]
    return max(free)


def _steps(ahead: int, count: int, training: bool) -> list[tuple[int, bool]]:
    """Return (microbatch, backward): as many forward as go ahead, then in turn."""
    first = min(ahead, count) if training else count
    steps = [(number, False) for number in range(first)]
    for number in range(first, count):
        steps += [(number - first, True), (number, False)]
    if training:
        steps += [(number, True) for number in range(count - first, count)]
    return steps


def _before(
    stage: int, stages: int, microbatch: int, *, backward: bool
) -> tuple[int, int, bool] | None:
    """Return what a step reads: forward from below, backward from above."""
    if not backward:
        return (stage - 1, microbatch, False) if stage else None
    if stage == stages - 1:
        return (stage, microbatch, False)
    return (stage + 1, microbatch, True)
