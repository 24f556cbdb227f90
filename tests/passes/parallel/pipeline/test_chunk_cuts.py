"""Chunks of interleaved pipelines: what of all chunks is done last is done soonest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfc.passes.parallel.pipeline.chunk_cuts import (
    BACKWARD_PER_FORWARD,
    ChunkSteps,
    Costs,
)

_WITH_A_HEAD = [0.004, 0.0, 0.004, *[1.0] * 12, 0.004, 3.92]
"""Work of GPT-2's layers by that of a block: embeddings, blocks, a norm, the head."""


def _costs(work: Sequence[float]) -> Costs:
    """Return costs of layers between which next to nothing is sent."""
    return Costs.of(work, [0, *[1] * (len(work) - 1)], 1e-6)


def _sizes(ends: Sequence[int]) -> list[int]:
    return [end - begin for begin, end in pairwise(ends)]


def _slowest(parts: Sequence[float], stages: int) -> float:
    return max(sum(parts[stage::stages]) for stage in range(stages))


@given(st.integers(2, 6), st.integers(2, 4), st.integers(1, 4), st.booleans())
def test_equal_layers_are_assigned_evenly(
    stages: int,
    chunks: int,
    each: int,
    training: bool,
) -> None:
    """Every chunk has as many, though shorter ones at the ends would fill up sooner."""
    steps = ChunkSteps.of(stages, chunks, 2 * stages, training=training)

    ends = steps.cut(_costs([1.0] * (stages * chunks * each)))

    assert [each] * (stages * chunks) == _sizes(ends)


@given(st.integers(2, 6), st.integers(2, 4), st.integers(1, 4))
def test_time_of_equal_chunks(stages: int, chunks: int, rounds: int) -> None:
    """All chunks of a stage, and a chunk for each stage before the last."""
    steps = ChunkSteps.of(stages, chunks, rounds * stages, training=True)

    time = steps.time([1.0] * (stages * chunks))

    slots = rounds * stages * chunks + stages - 1
    assert slots * (1 + BACKWARD_PER_FORWARD) == pytest.approx(time)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(2, 4),
    st.integers(2, 3),
    st.integers(1, 3),
    st.lists(st.floats(0.01, 10), min_size=12, max_size=24),
)
def test_no_slower_than_by_the_slowest_chunk(
    stages: int, chunks: int, rounds: int, work: list[float]
) -> None:
    """And every chunk has a layer."""
    costs = _costs(work)
    steps = ChunkSteps.of(stages, chunks, rounds * stages, training=True)

    ends = steps.cut(costs)

    assert all(_sizes(ends))
    assert (0, len(work), stages * chunks + 1) == (ends[0], ends[-1], len(ends))
    alone = costs.cut(stages * chunks)
    assert steps.time(costs.parts(ends)) <= steps.time(costs.parts(alone))


@pytest.mark.parametrize(("stages", "chunks"), [(2, 2), (2, 3), (4, 2), (4, 3)])
def test_nearly_the_best_of_all_cuts(stages: int, chunks: int) -> None:
    """Of a model whose last layer takes as long as four others."""
    costs, count = _costs(_WITH_A_HEAD), len(_WITH_A_HEAD)
    steps = ChunkSteps.of(stages, chunks, 2 * stages, training=True)
    inner = combinations(range(1, count), stages * chunks - 1)

    ends = steps.cut(costs)

    best = min(steps.time(costs.parts((0, *cut, count))) for cut in inner)
    assert steps.time(costs.parts(ends)) <= 1.03 * best


def test_the_stage_of_the_head_has_less_of_others() -> None:
    """By the slowest chunk its other chunks may be as long as the head is."""
    costs = _costs(_WITH_A_HEAD)
    steps = ChunkSteps.of(4, 3, 8, training=True)

    parts, alone = costs.parts(steps.cut(costs)), costs.parts(costs.cut(12))

    assert max(parts) == max(alone)
    assert pytest.approx(5.92, abs=0.01) == _slowest(parts, 4)
    assert pytest.approx(6.92, abs=0.01) == _slowest(alone, 4)


def test_what_crosses_counts_where_it_takes_longer() -> None:
    """Chunks meet where less is sent."""
    sent = [0, 9, 1, 9, 1, 9, 1, 9]
    steps = ChunkSteps.of(2, 2, 2, training=False)

    assert (0, 2, 4, 6, 8) == steps.cut(Costs.of([1.0] * 8, sent, 1.0))
