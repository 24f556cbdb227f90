"""Costs that differ by rounding alone count as equal, and sums of loads are exact."""

from __future__ import annotations

import random

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.planning.tasks import ALL_TYPES, ToyCost, random_tables

from perfc.passes import Plan, World
from perfc.passes.embeddings import COLUMN_WISE, TABLE_WISE
from perfc.planning.plans import SHARDERS, Table, sharder_plan
from perfc.planning.plans.ties import grades, is_less, least, most, on_grid, ranking
from perfc.planning.searches import Task, search
from perfc.planning.searches.exhaustive_search import exhaustive

UP = 1 + 3e-16


def test_the_first_of_equals() -> None:
    """Costs that differ in the last digits are one cost: the first is taken."""
    assert 1 == least([2.0, UP, 1.0, 1.5])
    assert 0 == most([2.0, 2.0 * UP, 1.0])
    assert [1, 2, 3, 0] == ranking([2.0, UP, 1.0, 1.5])
    assert [2, 0, 0, 1] == grades([2.0, UP, 1.0, 1.5])
    assert (False, True) == (is_less(1.0, UP), is_less(1.0, 1.0 + 1e-6))


def test_infinity_is_a_cost() -> None:
    """What does not fit is worse than anything else, and no better than itself."""
    inf = float("inf")

    assert [1, 0, 1] == grades([inf, 1.0, inf])
    assert (1, 0) == (least([inf, 1.0]), least([inf, inf]))
    assert (True, False, False) == (
        is_less(1.0, inf),
        is_less(inf, 1.0),
        is_less(inf, inf),
    )


def test_differences_of_a_scale() -> None:
    """What is left of a difference of large numbers is compared with these."""
    assert [0, 0, 1] == grades([0.0, 1e-17, 1e-3], scale=1.0)


@given(st.lists(st.floats(0.0, 1e-3), min_size=1, max_size=40), st.randoms())
def test_sums_do_not_depend_on_their_order(
    amounts: list[float], chance: random.Random
) -> None:
    """What is added up in any order, and taken out again, leaves nothing behind."""
    column = np.array(amounts)[:, None]
    rounded: list[float] = on_grid(column, column.sum(axis=0))[:, 0].tolist()
    mixed = chance.sample(rounded, len(rounded))
    left = sum(mixed)
    for one in rounded:
        left -= one

    assert sum(rounded) == sum(mixed)
    assert 0.0 == left
    assert rounded == pytest.approx(amounts, rel=1e-9, abs=1e-15 * sum(amounts))


@attrs.frozen
class _Shaken(ToyCost):
    """A cost whose last digits are those of another processor.

    Attributes:
        seed: Of the digits.

    """

    seed: int = 0

    def step_s(self, loads: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the time, some units in the last place more or less."""
        steps = ToyCost.step_s(self, loads)
        chance = np.random.default_rng(self.seed)
        return steps * (1 + chance.integers(-4, 5, steps.shape) * 1.1e-16)


def _alike(count: int) -> list[Table]:
    return [Table(name=f"t{n}", rows=1000, dim=64, pooling=9.0) for n in range(count)]


def _whole(tables: list[Table]) -> Task:
    """Whole tables on four ranks with room for them."""
    return Task.of(tables, ToyCost(World(4, 4)), World(4, 4), 1e9, (TABLE_WISE,))


def _plans(tables: list[Table], ranks: int, seed: int) -> list[Plan | None]:
    world = World(ranks, min(ranks, 2))
    cost = _Shaken(world, seed=seed)
    memory = 1.3 * sum(table.bytes for table in tables) / ranks
    task = Task.of(tables, cost, world, memory, ALL_TYPES)
    found = [one.plan for one in search(task)]
    small = Task.of(tables[:4], cost, world, memory, (TABLE_WISE, COLUMN_WISE))
    best = exhaustive(small)
    return [*found, best.plan if best else None]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("kind", ["alike", "random"])
def test_last_digits_choose_no_plan(kind: str, ranks: int) -> None:
    """Every search finds the same plan whichever way a processor rounds."""
    tables = _alike(7) if kind == "alike" else random_tables(5, 7)
    first = _plans(tables, ranks, 0)

    assert [first] * 5 == [_plans(tables, ranks, seed) for seed in range(1, 6)]


@pytest.mark.parametrize("kind", ["alike", "random"])
def test_the_order_of_a_list_chooses_no_plan(kind: str) -> None:
    """Tables are taken by name: a list in another order has the same plan."""
    tables = _alike(12) if kind == "alike" else random_tables(4, 12)
    mixed = random.Random(0).sample(tables, len(tables))

    assert _plans(tables, 4, 0)[:-1] == _plans(mixed, 4, 0)[:-1]


def test_tables_alike_take_their_places_by_name() -> None:
    """Of tables that differ in name alone the first has the first place."""
    plan = search(_whole(_alike(11)))[0].plan
    places = [plan[f"t{n}"].places for n in range(11)]

    assert sorted(places) == places


@pytest.mark.parametrize("name", sorted({*SHARDERS} - {"random", "naive_chunk"}))
def test_sharders_take_equal_tables_in_turn(name: str) -> None:
    """Of tables and ranks that are alike the first comes first."""
    plan = sharder_plan(name, _alike(5), World(2, 2))

    assert plan is not None
    assert [0, 1, 0, 1, 0] == [plan[f"t{n}"].places[0] for n in range(5)]
