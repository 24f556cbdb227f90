"""The sharders of Lin et al."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.ir import PerfcError, UsageError
from perfc.passes import World
from perfc.planning import sharder_plans
from perfc.planning.plans import SHARDERS, Table, check_plan, sharder_plan

ONE_TABLE = st.builds(
    Table,
    name=st.just(""),
    rows=st.integers(1, 10**7),
    dim=st.sampled_from([1, 4, 64, 256]),
    pooling=st.floats(0, 100),
)
TABLES = st.lists(ONE_TABLE, min_size=1, max_size=12).map(
    lambda tables: [_named(table, at) for at, table in enumerate(tables)]
)


def _named(table: Table, at: int) -> Table:
    return Table(name=f"t{at}", rows=table.rows, dim=table.dim, pooling=table.pooling)


def _places(name: str, tables: list[Table], ranks: int) -> list[int]:
    plan = sharder_plan(name, tables, World(ranks, ranks))
    assert plan is not None
    return [plan[table.name].places[0] for table in tables]


def test_blind_sharders() -> None:
    """Round robin goes in turn, chunks are cut evenly, chance repeats itself."""
    tables = [Table(name=f"t{at}", rows=1, dim=4, pooling=1) for at in range(5)]
    assert [0, 1, 0, 1, 0] == _places("naive", tables, 2)
    assert [0, 0, 0, 1, 1] == _places("naive_chunk", tables, 2)
    assert _places("random", tables, 2) == _places("random", tables, 2)


def test_weights() -> None:
    """Each greedy sharder sets the table that weighs most apart from the others."""
    apart = {
        "dim_greedy": Table(name="x", rows=10, dim=512, pooling=0.1),
        "size_greedy": Table(name="x", rows=10**7, dim=4, pooling=0.1),
        "lookup_greedy": Table(name="x", rows=10, dim=4, pooling=1000),
        "norm_lookup_greedy": Table(name="x", rows=2, dim=4, pooling=50),
        "size_lookup_greedy": Table(name="x", rows=10**6, dim=4, pooling=200),
    }
    others = [Table(name=f"t{at}", rows=100, dim=64, pooling=3) for at in range(3)]
    for name, table in apart.items():
        ranks = _places(name, [*others, table], 2)
        assert [1, 1, 1, 0] == ranks, name


@given(TABLES, st.integers(1, 6))
def test_plans_hold_all_tables(tables: list[Table], ranks: int) -> None:
    """Every sharder places every table on a rank that is there."""
    world = World(ranks, ranks)
    plans = sharder_plans(tables, world)
    assert list(SHARDERS) == list(plans)
    for plan in plans.values():
        check_plan(tables, plan, world)


@given(TABLES, st.integers(1, 4))
def test_greedy_is_near_the_mean(tables: list[Table], ranks: int) -> None:
    """No rank gets more than the mean and the heaviest table (Graham, 1969)."""
    loads = [0.0] * ranks
    for table, rank in zip(tables, _places("size_greedy", tables, ranks), strict=True):
        loads[rank] += table.bytes
    heaviest = max(table.bytes for table in tables)
    assert max(loads) <= (sum(loads) / ranks + heaviest) * (1 + 1e-9)


def test_memory() -> None:
    """Greedy sharders pass over full ranks; plans that do not fit are left out."""
    big = [Table(name=f"b{at}", rows=100, dim=1, pooling=0) for at in range(2)]
    small = [Table(name=f"s{at}", rows=1, dim=1, pooling=9) for at in range(2)]
    plans = sharder_plans([*big, *small], World(2, 2), memory_bytes=404)
    assert "naive_chunk" not in plans
    assert {0, 1} == {plans["lookup_greedy"][table.name].places[0] for table in big}
    assert {} == sharder_plans(big, World(2, 2), memory_bytes=399)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"rows": 0}, "rows is 0"),
        ({"dim": -4}, "dim is -4"),
        ({"pooling": -1.0}, "pooling is -1.0"),
        ({"pooling": math.nan}, "pooling is nan"),
        ({"element_bytes": 0.0}, "element_bytes is 0.0"),
    ],
)
def test_bad_tables(change: dict[str, float], problem: str) -> None:
    """A table that cannot be is refused by name."""
    fields = {"name": "emb é", "rows": 10, "dim": 4, "pooling": 1.0, **change}
    table = Table(**fields)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - wrong on purpose
    with pytest.raises(PerfcError, match=f"table 'emb é': {problem}"):
        sharder_plan("naive", [table], World(1, 1))


def test_bad_names() -> None:
    """An unknown sharder is refused with those there are; so is no rank."""
    table = Table(name="t", rows=1, dim=1, pooling=1)
    with pytest.raises(UsageError, match="'best' is none of naive, naive_chunk"):
        sharder_plan("best", [table], World(1, 1))
    with pytest.raises(UsageError, match="0 ranks, expected 1 or more"):
        sharder_plan("naive", [table], World(0, 1))
