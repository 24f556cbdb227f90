"""Costs that know one number of a table."""

from __future__ import annotations

import numpy as np
import pytest

from perfc.ir import PerfcError, UsageError
from perfc.passes import Placement, World
from perfc.passes.embeddings import ROW_WISE, TABLE_WISE
from perfc.planning import plan_times, sharder_plans
from perfc.planning.plans import Table, WeightCost

WORLD = World(ranks=2, per_node=2)
TABLES = [
    Table(name=f"t{at}", rows=10, dim=64, pooling=pooling)
    for at, pooling in enumerate((5, 4, 3, 3))
]


def test_a_step_is_the_heaviest_rank() -> None:
    """Round robin the ranks look up 8 and 7 rows, cut in two 9 and 6."""
    cost = WeightCost(sharder="lookup_greedy", world=WORLD)
    times = plan_times(cost, TABLES, sharder_plans(TABLES, WORLD), WORLD)
    expected = {"naive": 64 * 8.0, "naive_chunk": 64 * 9.0, "lookup_greedy": 64 * 8.0}
    assert expected == {name: times[name] for name in expected}
    assert [3.0, 5.0] == cost.step_s(
        np.array([[[3.0], [1.0]], [[2.0], [5.0]]])
    ).tolist()


def test_memory_is_that_of_rows() -> None:
    """A shard takes the bytes of its table."""
    cost = WeightCost(sharder="size_greedy", world=WORLD)
    (shard,) = cost.shards(TABLES[0], Placement(TABLE_WISE, (1,)))
    assert (1, (2560.0,), 2560.0) == (shard.rank, shard.loads, shard.memory_bytes)


def test_bad_input() -> None:
    """It knows no other sharders, and no parts of tables."""
    with pytest.raises(UsageError, match="sharder 'naive' is none of dim_greedy"):
        WeightCost(sharder="naive", world=WORLD)
    cost = WeightCost(sharder="dim_greedy", world=WORLD)
    with pytest.raises(PerfcError, match="weighs whole tables, not row_wise"):
        cost.shards(TABLES[0], Placement(ROW_WISE))
