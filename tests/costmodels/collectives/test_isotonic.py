"""Isotonic regression against what defines it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.costmodels.collectives.isotonic import isotonic_regression

ROWS = st.lists(
    st.tuples(st.floats(-100, 100), st.integers(1, 5)), min_size=1, max_size=12
)


@pytest.mark.parametrize(
    ("values", "counts", "expected"),
    [
        ([1, 2, 3], [1, 1, 1], [1, 2, 3]),
        ([1, 4, 2, 5], [1, 1, 1, 1], [1, 3, 3, 5]),
        ([6, 0], [1, 2], [2, 2]),
        ([3, 2, 1], [1, 1, 1], [2, 2, 2]),
    ],
)
def test_what_falls_is_pooled(
    values: list[float], counts: list[float], expected: list[float]
) -> None:
    """Into the mean of all rows that were measured there."""
    found = isotonic_regression(
        np.array(values, dtype=float), np.array(counts, dtype=float)
    )

    assert found.tolist() == pytest.approx(expected)


@given(rows=ROWS, steps=st.lists(st.floats(0, 20), min_size=12, max_size=12))
def test_no_rising_sequence_is_nearer(
    rows: list[tuple[float, int]], steps: list[float]
) -> None:
    """It never falls, and moving towards any other that does not goes away from it."""
    values, counts = (
        np.array(column, dtype=float) for column in zip(*rows, strict=True)
    )
    found = isotonic_regression(values, counts)
    other = values.min() + np.cumsum(steps[: len(values)])

    def distance(x: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
        return float((counts * np.square(x - values)).sum())

    nearby = found + 0.1 * (other - found)
    assert (np.diff(found) >= 0).all()
    assert distance(found) <= distance(nearby) * (1 + 1e-9) + 1e-9
