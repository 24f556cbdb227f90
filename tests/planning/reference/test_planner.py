"""Plans that are found as TorchRec's planner finds them."""

from __future__ import annotations

import itertools

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfc.ir import PerfcError, UsageError
from perfc.passes import Placement, Plan, World
from perfc.passes.embeddings import COLUMN_WISE, GRID, ROW_WISE, TABLE_WISE
from perfc.planning import (
    PerfRules,
    Topology,
    TorchRecCost,
    TorchRecPlanner,
    plan_times,
)
from perfc.planning.plans import Table, check_plan
from perfc.planning.searches import Task, plan_loads
from perfc.planning.searches.exhaustive_search import exhaustive

WORLD = World(ranks=4, per_node=2)
RULES = PerfRules(topology=Topology(world=WORLD), batch=64)
COST = TorchRecCost(rules=RULES)
PLANNER = TorchRecPlanner(cost=COST, world=WORLD, memory_bytes=1e9)

SOME_TABLES = st.lists(
    st.builds(
        Table,
        name=st.just(""),
        rows=st.integers(1, 10**5),
        dim=st.sampled_from([8, 128, 512]),
        pooling=st.floats(0, 50),
    ),
    min_size=1,
    max_size=6,
).map(lambda found: [attrs.evolve(t, name=f"t{at}") for at, t in enumerate(found)])


def _tables(*pooling: float) -> list[Table]:
    return [
        Table(name=f"t{at}", rows=1000, dim=128, pooling=each)
        for at, each in enumerate(pooling)
    ]


def test_largest_first_to_the_least() -> None:
    """Tables of 5, 4, 3, 3 and 3 lookups on two ranks: 5 + 3 and 4 + 3 + 3."""
    world = World(2, 2)
    cost = TorchRecCost(rules=PerfRules(topology=Topology(world=world), batch=64))
    planner = TorchRecPlanner(
        cost=cost, world=world, memory_bytes=1e9, kinds=(TABLE_WISE,)
    )
    plan = planner.plan(_tables(3, 5, 3, 4, 3)).plan
    found = [plan[f"t{at}"].places for at in (1, 3, 0, 2, 4)]
    assert [(0,), (1,), (1,), (0,), (1,)] == found


def test_full_ranks_are_passed_over() -> None:
    """Where two tables do not fit on a rank, each has its own."""
    storage = COST.shards(_tables(1)[0], Placement(TABLE_WISE, (0,)))[0].memory_bytes
    planner = attrs.evolve(PLANNER, memory_bytes=1.5 * storage, kinds=(TABLE_WISE,))
    plan = planner.plan(_tables(1, 1, 1, 1)).plan
    assert [0, 1, 2, 3] == sorted(place.places[0] for place in plan.values())
    with pytest.raises(PerfcError, match=r"none of 3 proposals fits in 4 x .* MiB"):
        planner.plan(_tables(1, 1, 1, 1, 1))


def test_columns_go_in_parts_of_128() -> None:
    """512 columns go in four parts to four ranks, to two nodes not at all."""
    wide = [Table(name="t", rows=100, dim=512, pooling=10)]
    planner = attrs.evolve(PLANNER, kinds=(COLUMN_WISE,))
    assert (0, 1, 2, 3) == planner.plan(wide).plan["t"].places
    with pytest.raises(PerfcError, match="cannot be sharded by any of grid_shard"):
        attrs.evolve(PLANNER, kinds=(GRID,)).plan(wide)


def test_kernels_of_the_host_save_memory() -> None:
    """A table that no device holds is kept in the host's memory, if that is allowed."""
    tables = [Table(name="t", rows=10**6, dim=128, pooling=1)]
    small = attrs.evolve(PLANNER, memory_bytes=100e6)
    with pytest.raises(PerfcError, match="allow other kinds or kernels"):
        small.plan(tables)
    both = attrs.evolve(small, kernels=("fused", "fused_uvm"))
    assert "fused_uvm" == both.plan(tables).plan["t"].compute_kernel


@given(SOME_TABLES, st.sampled_from(["greedy", "memory-balanced"]))
def test_plans_hold(tables: list[Table], partitioner: str) -> None:
    """A plan places each table, fits, and takes what the cost says of it."""
    planner = attrs.evolve(PLANNER, partitioner=partitioner)
    found = planner.plan(tables)
    check_plan(tables, found.plan, WORLD)
    _, memory = plan_loads(COST, tables, found.plan, WORLD)
    assert pytest.approx(tuple(memory)) == found.memory_bytes
    assert max(found.memory_bytes) <= planner.memory_bytes
    step_s = plan_times(COST, tables, {"": found.plan}, WORLD)[""]
    assert pytest.approx(step_s) == found.step_s
    assert found.proposals >= found.fitting > 0


@given(SOME_TABLES)
def test_balanced_memory(tables: list[Table]) -> None:
    """Balancing never raises the most that a rank holds by more than it is slower."""
    one = attrs.evolve(PLANNER, kinds=(TABLE_WISE,), proposers=("uniform",))
    other = attrs.evolve(one, partitioner="memory-balanced")
    plain, balanced = one.plan(tables), other.plan(tables)
    assert max(balanced.memory_bytes) <= max(plain.memory_bytes)
    assert balanced.step_s <= plain.step_s * 1.02 * (1 + 1e-9)


@given(SOME_TABLES)
def test_more_proposals_are_no_worse(tables: list[Table]) -> None:
    """What one proposer finds is found by it together with another."""
    found = {
        names: attrs.evolve(PLANNER, proposers=names).plan(tables).step_s
        for names in (("greedy",), ("uniform",), ("greedy", "uniform"))
    }
    both = found.pop(("greedy", "uniform"))
    assert min(found.values()) == both


def test_grid_tries_everything() -> None:
    """Where all ranks hold all tables none is placed: the grid's best is the best."""
    tables = _tables(1, 20)
    kinds = (ROW_WISE, "data_parallel")
    planner = attrs.evolve(PLANNER, kinds=kinds, proposers=("grid",))
    found = planner.plan(tables)
    plans: dict[str, Plan] = {
        f"{one}, {other}": {"t0": Placement(one), "t1": Placement(other)}
        for one, other in itertools.product(kinds, repeat=2)
    }
    times = plan_times(COST, tables, plans, WORLD)
    assert (4, min(times.values())) == (found.proposals, found.step_s)


@given(SOME_TABLES)
def test_dynamic_finds_the_least_sum(tables: list[Table]) -> None:
    """With room for all, the least sum of all shards is among its proposals."""
    planner = attrs.evolve(PLANNER, proposers=("dynamic",), memory_bytes=1e12)
    one_rank = World(1, 1)
    cost = TorchRecCost(rules=PerfRules(topology=Topology(world=one_rank), batch=64))
    alone = attrs.evolve(planner, cost=cost, world=one_rank)
    grid = attrs.evolve(alone, proposers=("grid",), kinds=(TABLE_WISE, ROW_WISE))
    dynamic = attrs.evolve(alone, kinds=(TABLE_WISE, ROW_WISE))
    assert pytest.approx(grid.plan(tables).step_s) == dynamic.plan(tables).step_s


@given(SOME_TABLES)
@settings(max_examples=20)
def test_no_better_than_trying_all(tables: list[Table]) -> None:
    """No plan of whole tables is better than the best of all of them."""
    planner = attrs.evolve(PLANNER, kinds=(TABLE_WISE,))
    task = Task.of(tables, COST, WORLD, planner.memory_bytes, (TABLE_WISE,))
    best = exhaustive(task)
    assert best is not None
    best_s = plan_times(COST, tables, {"": best.plan}, WORLD)[""]
    assert best_s <= planner.plan(tables).step_s * (1 + 1e-12)


def test_bad_names() -> None:
    """Names that are unknown are refused with those there are."""
    with pytest.raises(UsageError, match="proposer 'best' is none of greedy"):
        attrs.evolve(PLANNER, proposers=("best",))
    with pytest.raises(UsageError, match="partitioner 'even' is none of greedy"):
        attrs.evolve(PLANNER, partitioner="even")
    with pytest.raises(UsageError, match="sharding type 'whole' is none of"):
        attrs.evolve(PLANNER, kinds=("whole",)).plan(_tables(1))
    with pytest.raises(UsageError, match="nan bytes of memory"):
        attrs.evolve(PLANNER, memory_bytes=float("nan"))
    with pytest.raises(UsageError, match="compute kernel 'fast' is none of dense"):
        attrs.evolve(PLANNER, kernels=("fast",)).plan(_tables(1))
    with pytest.raises(PerfcError, match="no embedding tables"):
        PLANNER.plan([])
