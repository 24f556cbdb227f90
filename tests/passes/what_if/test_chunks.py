"""Chunks that are copied and computed in turn: formulas against a simulation."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.passes.what_if import best_chunks, chunked_s

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
