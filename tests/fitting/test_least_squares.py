"""Fitting sums of terms to measured times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfc.fitting.errors import errors_of
from perfc.fitting.least_squares import fit_terms

COEFFICIENTS = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=5)


@settings(deadline=None, max_examples=20)
@given(COEFFICIENTS, st.integers(0, 2**32 - 1))
def test_the_coefficients_of_exact_times_come_back(
    coefficients: list[float], seed: int
) -> None:
    """From 100 rows that are the sum of the terms, of a belief that is 3 times off."""
    random = np.random.default_rng(seed)
    amounts = random.uniform(0.1, 10, (100, len(coefficients)))
    measured = amounts @ np.array(coefficients)

    believed = np.array(coefficients) * random.choice([1 / 3, 3], len(coefficients))
    found = fit_terms(amounts, measured, believed)

    assert np.abs(amounts @ found / measured - 1).max() < 0.05
    assert (found >= 0).all()


def test_rows_that_something_disturbed_count_little() -> None:
    """One row in ten that took thrice as long does not move the fit by 3 %."""
    random = np.random.default_rng(1)
    amounts = random.uniform(1, 10, (60, 2))
    truth = np.array([2.0, 5.0])
    measured = amounts @ truth
    measured[::10] *= 3

    found = fit_terms(amounts, measured, truth * 2)

    assert pytest.approx(truth, rel=0.03) == found


def test_a_term_without_amount_keeps_what_was_believed() -> None:
    """Rows that say nothing of it do not set it to 0."""
    amounts = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])

    found = fit_terms(amounts, amounts[:, 0] * 4, np.array([1.0, 7.0]))

    assert 7.0 == found[1]
    assert pytest.approx(4, rel=0.2) == found[0]


def test_few_rows_move_a_belief_less_than_many() -> None:
    """One row that takes twice as long is a hint; a hundred are a fact."""
    belief = np.array([1.0])
    few, many = (
        fit_terms(np.ones((rows, 1)), np.full(rows, 2.0), belief)[0]
        for rows in (1, 100)
    )

    assert 1 < few < many <= 2
    assert pytest.approx(2, rel=0.01) == many


def test_the_offset_is_in_the_row_but_in_no_term() -> None:
    """What is around a kernel is taken off before the terms are fitted."""
    amounts = np.linspace(1, 5, 50)[:, np.newaxis]
    offset = np.full(50, 10.0)

    found = fit_terms(amounts, amounts[:, 0] * 3 + offset, np.array([1.0]), offset)

    assert pytest.approx(3, rel=0.02) == found[0]


def test_errors_are_fractions_of_what_was_measured() -> None:
    """Half and twice as long: MAPE 75 %, GMAE 100 %, bias 25 %."""
    errors = errors_of(np.array([0.5, 2.0]), np.array([1.0, 1.0]))

    assert errors is not None
    assert pytest.approx((0.75, 1.0, 0.25, 1.0)) == (
        errors.mape,
        errors.gmae,
        errors.bias,
        errors.max,
    )
    assert errors_of(np.array([]), np.array([])) is None
