"""Which networks of GEMMs are kept out, by their scores elsewhere."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from corrections import Score, losing

MEASURED_S = np.array([1.0, 2.0, 4.0])


def _score(network: float, gpu: str = "t4") -> Score:
    """Return a score whose formula is a tenth off, and its network by as much."""
    predicted = [MEASURED_S * 1.1, MEASURED_S * network]
    return Score.of((gpu, "fp32", "a session"), predicted, MEASURED_S)


@pytest.mark.parametrize(
    ("networks", "out"),
    [((1.2,), True), ((1.2, 1.05), True), ((1.2, 1.05, 1.0), False), ((1.0,), False)],
)
def test_a_network_stays_that_wins_on_most(
    networks: tuple[float, ...], *, out: bool
) -> None:
    """Of its own scores: one that loses on half of them or more stays out."""
    scores = [*(_score(each) for each in networks), _score(1.0, "p4")]

    lost = losing(scores)

    assert ({"t4/fp32"} if out else set()) == set(lost)


def test_what_is_listed_is_where_it_loses() -> None:
    """Too slow or too fast alike."""
    lost = losing([_score(1.05), _score(0.7), _score(1.3)])

    assert [0.7, 1.3] == pytest.approx([1 + s.network.bias for s in lost["t4/fp32"]])


def test_rows_on_a_rising_clock_decide_nothing() -> None:
    """They say a clock, which no network of sizes can know."""
    cold = attrs.evolve(_score(1.4), decides=False)

    assert not losing([cold, cold, _score(1.0)])
