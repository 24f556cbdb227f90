"""Searches for plans: how near they come to the best, and what they refuse."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.planning.tasks import ALL_TYPES, ToyCost, toy_task

from perfc.ir import PerfcError, UsageError
from perfc.passes import World
from perfc.passes.embeddings import COLUMN_WISE, ROW_WISE, TABLE_WISE
from perfc.planning.plans import Table
from perfc.planning.searches import (
    BASELINES,
    Draft,
    Task,
    count_plans,
    search,
)
from perfc.planning.searches.exhaustive_search import exhaustive
from perfc.planning.searches.greedy_search import greedy

NEAR = 1.01
"""Of the best plan's step, what a search may take."""


@pytest.mark.parametrize("tasks", [18, pytest.param(100, marks=pytest.mark.slow)])
def test_within_one_percent_of_the_best(tasks: int) -> None:
    """On all tasks, columns split or not, tight in memory or not."""
    ratios: list[float] = []
    for seed in range(tasks):
        count, ranks = (6, 2) if seed % 2 else (5, 3)
        task = toy_task(seed, count, ranks, slack=(1.05, 1.3, 3.0)[seed % 3])
        best = exhaustive(task)
        assert best is not None
        ratios.append(search(task)[0].draft.step_s / best.step_s)

    assert tasks == len(ratios)
    assert max(ratios) <= NEAR


def test_all_plans_are_tried() -> None:
    """What `exhaustive` finds is the least of every product of choices."""
    task = toy_task(3, 3, 2, types=(TABLE_WISE, COLUMN_WISE, ROW_WISE))
    every = [
        [(n, spot) for n, option in enumerate(found) for spot in option.spots()]
        for found in task.options
    ]
    steps: list[float] = []
    for choices in itertools.product(*every):
        draft = Draft.empty(task)
        for table, choice in enumerate(choices):
            draft.set(table, choice)
        if draft.excess_bytes <= 0:
            steps.append(draft.key)
    best = exhaustive(task)

    assert math.prod(map(len, every)) == count_plans(task)
    assert best is not None
    assert min(steps) == pytest.approx(best.key)


@pytest.mark.parametrize(
    ("seed", "count", "ranks"),
    [(0, 60, 8), (1, 60, 8), (2, 60, 8), (3, 1000, 128), (4, 1000, 128)],
)
def test_never_worse_than_a_baseline(seed: int, count: int, ranks: int) -> None:
    """Of many tables the search finds a plan as good as each greedy one, or better."""
    types = ALL_TYPES if ranks <= 8 else (TABLE_WISE, COLUMN_WISE)
    task = toy_task(seed, count, ranks, types=types)
    found = search(task, seconds=3)
    steps = {one.name: one.draft.step_s for one in found}

    assert {*BASELINES, "local"} == steps.keys()
    assert all(steps["local"] <= steps[name] for name in BASELINES)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 99),
    count=st.integers(1, 8),
    ranks=st.sampled_from([1, 2, 4, 8]),
)
def test_loads_are_those_of_the_plan(seed: int, count: int, ranks: int) -> None:
    """However a plan came about, its loads and memory are the sums over its shards."""
    task = toy_task(seed, count, ranks, per_node=2, types=ALL_TYPES)
    draft = search(task, seconds=5)[0].draft
    again = Draft.of_plan(task, draft.plan)

    np.testing.assert_allclose(again.loads, draft.loads, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(again.used_bytes, draft.used_bytes, atol=1.0)
    assert {table.name for table in task.tables} == draft.plan.keys()


def test_equal_calls_give_equal_plans() -> None:
    """The random moves come from a seed."""
    task = toy_task(5, 20, 4)

    assert search(task)[0].plan == search(task)[0].plan


def test_greedy_fills_the_least_loaded() -> None:
    """The largest first, each to the rank with the least of what is counted."""
    tables = [
        Table(name=f"t{d}", rows=100, dim=d, pooling=1.0) for d in (64, 48, 32, 16)
    ]
    task = Task.of(tables, ToyCost(World(2, 2)), World(2, 2), 1e9, (TABLE_WISE,))
    made = greedy(task, "dim")

    assert made is not None
    assert {"t64": 0, "t48": 1, "t32": 1, "t16": 0} == {
        name: placement.places[0] for name, placement in made.plan.items()
    }


@pytest.mark.parametrize("method", ["greedy", "beam", "local"])
def test_every_method_says_who_made_a_plan(method: str) -> None:
    """The baselines stand beside what the method found."""
    names = {one.name for one in search(toy_task(1, 6, 2), method)}

    assert {*BASELINES, *({method} - {"greedy"})} == names


def test_out_of_time_takes_the_best_so_far() -> None:
    """Without any seconds there is a plan all the same."""
    found = search(toy_task(2, 40, 8), seconds=0.0)

    assert found[0].draft.excess_bytes <= 0


def test_a_table_too_large() -> None:
    """It is named, with how much it is too large by."""
    tables = [Table(name="small", rows=1000, dim=64, pooling=1.0)]
    large = Table(name="large", rows=10_000_000, dim=64, pooling=1.0)
    world = World(4, 4)
    task = Task.of([*tables, large], ToyCost(world), world, 2e9, (TABLE_WISE,))
    with pytest.raises(
        PerfcError, match=r"'large' takes at least 2\.\d+ GiB .* \d+ MiB"
    ):
        search(task)


def test_small_tables_are_not_0_gb() -> None:
    """Megabytes say by how much a small table is too large."""
    world = World(4, 4)
    table = Table(name="small", rows=1000, dim=64, pooling=1.0)
    task = Task.of([table], ToyCost(world), world, 2e5, (TABLE_WISE,))
    with pytest.raises(PerfcError, match=r"least 250 KiB .* 195 KiB: 54\.7 KiB"):
        search(task)


def test_tables_too_large_together() -> None:
    """How much all of them are too large by is said."""
    world = World(2, 2)
    tables = [Table(name=f"t{n}", rows=10**7, dim=32, pooling=1.0) for n in range(4)]
    task = Task.of(tables, ToyCost(world), world, 2e9, (TABLE_WISE, COLUMN_WISE))
    with pytest.raises(
        PerfcError, match=r"take 4\.77 GiB, 2 ranks .* 1\.04 GiB too much"
    ):
        search(task)


def test_types_are_checked() -> None:
    """An unknown type is named; so is a table that no type can cut."""
    world = World(4, 4)
    table = Table(name="narrow", rows=10, dim=4, pooling=1.0)
    with pytest.raises(UsageError, match="'diagonal' is none of table_wise"):
        Task.of([table], ToyCost(world), world, 1e9, ("diagonal",))
    with pytest.raises(UsageError, match="'narrow' of 4 columns cannot be sharded"):
        Task.of([table], ToyCost(world), world, 1e9, (COLUMN_WISE,))


def test_too_many_plans_to_try() -> None:
    """Exhaustive search says how many there are."""
    with pytest.raises(UsageError, match="plans are too many to try all"):
        exhaustive(toy_task(0, 30, 8))
