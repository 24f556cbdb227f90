"""Stretches of time against a count of instants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.tools.reports.stretches import Stretches, disjoint, idle, total_s

STRETCHES = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 9)).map(lambda p: (p[0], sum(p))),
    max_size=9,
)


def _covered(stretches: list[tuple[int, int]]) -> set[int]:
    return {at for start, end in stretches for at in range(start, end)}


def _array(stretches: list[tuple[int, int]]) -> Stretches:
    return np.array(stretches, dtype=np.float64).reshape(-1, 2)


@given(STRETCHES)
def test_what_overlaps_counts_once(stretches: list[tuple[int, int]]) -> None:
    """Disjoint stretches cover the same instants, in order."""
    found = disjoint(_array(stretches))

    assert total_s(_array(stretches)) == len(_covered(stretches))
    assert (found[1:, 0] > found[:-1, 1]).all()


@given(st.integers(0, 30), st.integers(0, 20), STRETCHES)
def test_idle_is_what_is_left(
    start: int, length: int, busy: list[tuple[int, int]]
) -> None:
    """The instants of a stretch in which nothing runs."""
    end = start + length
    found = idle((start, end), disjoint(_array(busy)))

    left = {*range(start, end)} - _covered(busy)
    assert sum(b - a for a, b in found) == pytest.approx(len(left))
    assert all(start <= a < b <= end for a, b in found)
