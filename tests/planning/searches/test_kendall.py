"""Kendall's tau-b."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.ir import PerfcError
from perfc.planning.searches import kendall_tau

PAIRS = st.lists(
    st.tuples(st.integers(-5, 5), st.floats(-1e6, 1e6)), min_size=2, max_size=12
)


def test_known_values() -> None:
    """The values are those of the definition, ties counted in either."""
    expected = {
        ((1, 2, 3, 4), (1, 2, 3, 4)): 1.0,
        ((1, 2, 3, 4), (4, 3, 2, 1)): -1.0,
        ((1, 2, 3), (1, 3, 2)): 1 / 3,
        # Five pairs are in order in the first, five in the second, four in both.
        ((1, 1, 2, 3), (1, 2, 2, 3)): 4 / 5,
    }
    found = {pair: kendall_tau(*pair) for pair in expected}
    assert pytest.approx(expected) == found


def test_no_order_has_no_tau() -> None:
    """Where all tie, or there is nothing to compare, there is no tau."""
    assert [None] * 3 == [
        kendall_tau([], []),
        kendall_tau([1.0], [2.0]),
        kendall_tau([1.0, 1.0], [1.0, 2.0]),
    ]


@given(PAIRS)
def test_symmetric_and_bounded(pairs: list[tuple[int, float]]) -> None:
    """It lies within -1 and 1, is the same both ways, and turns with one order."""
    one = [float(pair[0]) for pair in pairs]
    other = [pair[1] for pair in pairs]
    tau = kendall_tau(one, other)
    assert tau == kendall_tau(other, one)
    if tau is None:
        return
    assert -1 - 1e-12 <= tau <= 1 + 1e-12
    assert pytest.approx(-tau) == kendall_tau([-number for number in one], other)
    if len(set(other)) > 1:
        assert pytest.approx(1.0) == kendall_tau(other, other)


@given(PAIRS, st.randoms(use_true_random=False))
def test_order_of_things_does_not_matter(
    pairs: list[tuple[int, float]], chance: random.Random
) -> None:
    """Neither their order nor a growing function of the numbers changes it."""
    shuffled = chance.sample(pairs, len(pairs))
    assert kendall_tau(*_columns(pairs)) == kendall_tau(*_columns(shuffled))
    one, other = _columns(pairs)
    assert kendall_tau(one, other) == kendall_tau([7 * each**3 for each in one], other)


def _columns(pairs: list[tuple[int, float]]) -> tuple[list[float], list[float]]:
    return [float(pair[0]) for pair in pairs], [pair[1] for pair in pairs]


def test_bad_numbers() -> None:
    """Lists of different lengths, and what is no number, are refused."""
    with pytest.raises(PerfcError, match="2 numbers against 1"):
        kendall_tau([1.0, 2.0], [1.0])
    with pytest.raises(PerfcError, match="found nan"):
        kendall_tau([1.0, float("nan")], [1.0, 2.0])
