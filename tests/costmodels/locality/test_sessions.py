"""Lists that stay in sessions: formulas against traces made item by item."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.costmodels.locality import as_quotient, kept_share

_SESSIONS = st.floats(1.0, 1e6)
_STAYS = st.floats(0.0, 1.0)


@given(_SESSIONS, _STAYS)
def test_the_factor_is_from_one_to_the_session(session: float, stay: float) -> None:
    """Of no list more is left than all, and of each session one."""
    factor = 1 / kept_share(session, stay)

    assert 1 - 1e-12 <= factor <= session * (1 + 1e-9)


@given(_SESSIONS)
def test_the_ends(session: float) -> None:
    """Lists that always stay leave one a session, those that never do all."""
    assert kept_share(session, 1.0) == pytest.approx(1 / session)
    assert kept_share(session, 0.0) == pytest.approx(1.0)
    assert 1.0 == kept_share(1.0, 0.5)


@given(_SESSIONS, _STAYS, _STAYS)
def test_more_that_stays_leaves_less(session: float, one: float, two: float) -> None:
    """What is kept falls with the probability, and with the length of sessions."""
    low, high = sorted((one, two))

    assert kept_share(session, high) <= kept_share(session, low) + 1e-12
    assert kept_share(2 * session, low) <= kept_share(session, low) + 1e-12


@pytest.mark.parametrize(
    ("session", "stay", "factor"),
    [
        (16.5, 0.9, 6.47),
        (16.5, 0.95, 9.30),
        (16.5, 1.0, 16.5),
        (4.0, 0.95, 3.48),
        (1.15, 0.95, 1.14),
    ],
)
def test_published_factors(session: float, stay: float, factor: float) -> None:
    """The examples of the model."""
    assert 1 / kept_share(session, stay) == pytest.approx(factor, abs=0.005)


def _lengths(kind: str, mean: float) -> Callable[[random.Random], int]:
    low = int(mean)
    if kind == "fixed":
        return lambda rng: low + (rng.random() < mean - low)
    if kind == "spread":
        return lambda rng: rng.randint(1, round(2 * mean - 1))
    return lambda rng: 1 + int(rng.expovariate(1.0) / -math.log(1 - 1 / mean))


@pytest.mark.parametrize("kind", ["fixed", "spread", "geometric"])
@pytest.mark.parametrize(("session", "stay"), [(16.5, 0.95), (4.0, 0.5), (2.0, 1.0)])
def test_a_markov_trace(kind: str, session: float, stay: float) -> None:
    """Whatever lengths sessions have, counted lists agree within 3 %."""
    rng = random.Random(7)
    length, samples, kept, sessions = _lengths(kind, session), 0, 0, 0
    while samples < 200_000:
        sessions += 1
        for place in range(length(rng)):
            samples += 1
            kept += place == 0 or rng.random() >= stay

    assert kept_share(samples / sessions, stay) == pytest.approx(
        kept / samples, rel=0.03
    )


@given(st.floats(1e-6, 1.0))
def test_a_quotient_is_the_share(share: float) -> None:
    """To a billionth, and all where all is kept."""
    part, whole = as_quotient(share)

    assert part / whole == pytest.approx(share, abs=1e-9)
    assert (1, 1) == as_quotient(1.0)
