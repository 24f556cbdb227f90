"""What to take within a budget: the most value, exactly."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from perfc.planning.searches import Option, best_options, knapsack

Things = list[list[Option]]


def value(things: Things, chosen: Sequence[int | None]) -> float:
    """Return what a choice is worth."""
    return sum(t[c].value for t, c in zip(things, chosen, strict=True) if c is not None)


def weight(things: Things, chosen: Sequence[int | None]) -> float:
    """Return what a choice weighs."""
    found = zip(things, chosen, strict=True)
    return sum(t[c].weight for t, c in found if c is not None)


def brute(things: Things, budget: float) -> float:
    """Return the value of the best choice of all."""
    choices = itertools.product(*[[None, *range(len(each))] for each in things])
    fitting = (each for each in choices if weight(things, each) <= budget)
    return max(value(things, each) for each in fitting)


@pytest.mark.parametrize("seed", range(200))
def test_the_best_of_all_choices(seed: int) -> None:
    """Also where some cost nothing, lose time, or weigh more and are worth less."""
    rng = random.Random(seed)
    things = [
        [
            Option(rng.choice([0.0, rng.random(), rng.random() / 2]), rng.gauss(0.5, 1))
            for _ in range(rng.randint(1, 3))
        ]
        for _ in range(rng.randint(1, 7))
    ]
    budget = rng.random() * 2
    chosen = best_options(things, budget)

    assert weight(things, chosen) <= budget
    assert value(things, chosen) == pytest.approx(brute(things, budget), abs=1e-12)


def by_rows(weights: Sequence[int], values: Sequence[int], budget: int) -> int:
    """Return the best value by the table of all budgets."""
    best = [0] * (budget + 1)
    for w, v in zip(weights, values, strict=True):
        for room in range(budget, w - 1, -1):
            best[room] = max(best[room], best[room - w] + v)
    return best[budget]


@pytest.mark.parametrize("alike", [False, True])
def test_a_thousand_things(alike: bool) -> None:
    """As by the table of all budgets; where values follow weights, too."""
    rng = random.Random(7)
    weights = [rng.randint(1, 100) for _ in range(1000)]
    values = [w + 5 if alike else rng.randint(1, 100) for w in weights]
    things = [
        [Option(float(w), float(v))] for w, v in zip(weights, values, strict=True)
    ]
    budget = sum(weights) // 10
    chosen = best_options(things, budget)

    assert weight(things, chosen) <= budget
    assert value(things, chosen) == by_rows(weights, values, budget)


def test_a_list_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shortened: the choice fits, and is close to the best."""
    monkeypatch.setattr(knapsack, "MOST_PAIRS", 1 << 10)
    rng = random.Random(3)
    weights = [rng.random() for _ in range(60)]
    things = [[Option(w, w * 10 + rng.random() / 100)] for w in weights]
    budget = sum(weights) / 3
    chosen = best_options(things, budget)

    assert weight(things, chosen) <= budget
    assert value(things, chosen) == pytest.approx(budget * 10, rel=0.02)


def test_nothing_to_take() -> None:
    """No budget takes what is free; no thing takes nothing."""
    free, heavy = Option(0.0, 1.0), Option(1.0, 9.0)

    assert [] == best_options([], 1.0)
    assert [0, None] == best_options([[free], [heavy]], 0.0)
    assert [None] == best_options([[Option(0.5, -1.0)]], 1.0)
