"""The best rows, against what comparing all with all says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.tools.sweeping.selection import best, best_first, front

Row = dict[str, Any]
_COST, _GAIN, _BYTES = "time_us", "samples_per_s", "peak_memory_bytes"
_NUMBERS = st.integers(1, 6).map(float) | st.floats(1.0, 1e9) | st.none()
ROWS = st.lists(st.fixed_dictionaries(dict.fromkeys((_COST, _GAIN, _BYTES), _NUMBERS)))


def _beats(one: Row, other: Row, metrics: tuple[str, ...]) -> bool:
    """Whether a row is nowhere worse, and somewhere better by more than rounding."""
    signs = [-1 if metric == _GAIN else 1 for metric in metrics]
    gains = [
        sign * (other[metric] - one[metric]) / abs(other[metric])
        for sign, metric in zip(signs, metrics, strict=True)
    ]
    return all(gain >= -1e-12 for gain in gains) and any(gain > 1e-12 for gain in gains)


@given(ROWS, st.sampled_from([(_COST, _GAIN), (_COST, _BYTES), (_COST, _GAIN, _BYTES)]))
def test_front_is_that_of_brute_force(
    rows: list[Row], metrics: tuple[str, ...]
) -> None:
    """A row is in the front if, and only if, no other row beats it."""
    complete = [
        row for row in rows if all(row[metric] is not None for metric in metrics)
    ]
    expected = [
        row
        for row in complete
        if not any(_beats(other, row, metrics) for other in complete)
    ]

    assert expected == front(rows, metrics)


@given(ROWS, st.integers(1, 5))
def test_the_best_come_first(rows: list[Row], count: int) -> None:
    """Most samples a second, or least time; rows without a number are none of them."""
    fastest = sorted((r for r in rows if r[_COST] is not None), key=lambda r: r[_COST])
    most = sorted((r for r in rows if r[_GAIN] is not None), key=lambda r: -r[_GAIN])

    # Numbers that differ by rounding alone are equal: the first comes first.
    for name, ordered in ((_COST, fastest), (_GAIN, most)):
        found = [row[name] for row in best(rows, name, count)]
        assert [row[name] for row in ordered[:count]] == pytest.approx(found, rel=1e-9)


def test_rounding_beats_nothing() -> None:
    """Rows that differ in the last digit only are equal: all of them stay, in order."""
    rows = [
        {_COST: 10.0, _GAIN: 5.0},
        {_COST: 10.0 * (1 + 1e-15), _GAIN: 5.0},
        {_COST: 10.0, _GAIN: 4.0},
    ]

    assert rows[:2] == front(rows, (_COST, _GAIN))
    assert rows[:1] == best(rows, _COST, 1)


def test_what_does_not_fit_comes_last() -> None:
    """However fast it is, in both orders of rows."""
    rows: list[Row] = [
        {_GAIN: 9.0, "fits": False},
        {_GAIN: 5.0, "fits": True},
        {_GAIN: 7.0, "fits": True},
    ]

    for given_rows in (rows, rows[::-1]):
        assert [7.0, 5.0, 9.0] == [row[_GAIN] for row in best(given_rows, _GAIN, 3)]


def test_the_first_metric_that_is_known_leads() -> None:
    """Rows without it are the last; without any metric all stay in their order."""
    rows: list[Row] = [
        {_GAIN: None, _COST: 4.0},
        {_GAIN: None, _COST: None},
        {_GAIN: None, _COST: 3.0},
    ]

    found = best_first(rows, (_GAIN, _COST))
    assert [3.0, 4.0, None] == [row[_COST] for row in found]
    assert rows == best_first(rows, (_GAIN,))
