"""The shortest of some predicted times, errors that they share counted once."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfc
from perfc.passes.timing import (
    TimeErrors,
    errors_of_interval,
    probabilities_best,
    probability_shorter,
    time_errors,
)
from perfc.passes.timing.compared_times import AGAIN

BOARD, HOST = ("board", "gemm fp32 on t4"), ("host", "shared")

SIGMAS = st.floats(0.0, 0.5)
TIMES = st.builds(
    TimeErrors,
    st.floats(0.5, 2.0),
    st.dictionaries(st.sampled_from([BOARD, HOST]), SIGMAS),
    st.floats(0.01, 0.3),
)


def normal(value: float) -> float:
    """Return the share of a normal distribution below a value."""
    return (1 + math.erf(value / math.sqrt(2))) / 2


def test_errors_that_are_alike_cancel() -> None:
    """A board that is slow for both decides nothing between them; own errors do."""
    one = TimeErrors(1.0, {BOARD: 0.5}, 0.03)
    other = TimeErrors(1.05, {BOARD: 0.5}, 0.04)

    found = probability_shorter(one, other)

    assert pytest.approx(normal(math.log(1.05) / 0.05)) == found


def test_errors_that_are_not_alike_add_up() -> None:
    """What one of them has alone, or more of, makes the order less sure."""
    one = TimeErrors(1.0, {BOARD: 0.3}, 0.0)
    other = TimeErrors(1.2, {BOARD: 0.1, HOST: 0.1}, 0.0)

    found = probability_shorter(one, other)

    assert pytest.approx(normal(math.log(1.2) / math.hypot(0.2, 0.1))) == found


@pytest.mark.parametrize(("other_s", "expected"), [(1.0, 0.5), (1.1, 1.0), (0.9, 0.0)])
def test_without_errors_the_times_decide(other_s: float, expected: float) -> None:
    """Equal ones share."""
    times = [TimeErrors(seconds, {BOARD: 0.2}) for seconds in (1.0, other_s)]

    assert [expected, 1 - expected] == probabilities_best(times)


@given(st.lists(TIMES, max_size=5))
def test_one_of_them_is_the_shortest(times: list[TimeErrors]) -> None:
    """Probabilities sum to 1, for any number of times."""
    found = probabilities_best(times)

    assert len(times) == len(found)
    assert sum(found) == pytest.approx(1.0 if times else 0.0)
    assert all(0 <= each <= 1 for each in found)


@given(TIMES, TIMES)
def test_draws_are_as_the_formula(one: TimeErrors, other: TimeErrors) -> None:
    """A third time that is never the shortest changes nothing."""
    late = TimeErrors(1e9, {})

    drawn = probabilities_best([one, other, late])

    assert drawn[0] == pytest.approx(probability_shorter(one, other), abs=0.03)
    assert 0 == drawn[2]


def test_a_step_shares_all_with_itself_but_measuring_it_again() -> None:
    """The same report twice is a coin; its kernels are known by their signatures."""
    report = perfc.analyze("dlrm-ddp", target="t4", batch=64, runtime="cudagraph")
    errors = time_errors(report.analysis)
    alone = errors_of_interval(errors.time_s, report.results.interval)

    assert AGAIN <= errors.alone < alone.alone
    assert [0.5, 0.5] == probabilities_best([errors, errors])
    assert {"gemm"} <= {getattr(key, "op", "") for key in errors.shared}
