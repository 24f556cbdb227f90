"""The cost `torchrec`: what its rules say beyond the values that TorchRec tests."""

from __future__ import annotations

import math
from typing import cast

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.ir import PerfcError, UsageError
from perfc.passes import DATA_PARALLEL, Placement, World
from perfc.passes.embeddings import (
    COLUMN_WISE,
    GRID,
    ROW_WISE,
    TABLE_ROW_WISE,
    TABLE_WISE,
)
from perfc.planning import PerfRules, Topology, TorchRecCost, plan_times
from perfc.planning.plans import Shard, Table
from perfc.planning.reference import (
    GIB,
    CacheStats,
    Constraints,
    ShardSize,
    Storage,
    StorageRules,
    TwoTierNetwork,
)

WORLD = World(ranks=16, per_node=8)
TOPOLOGY = Topology(world=WORLD)
RULES = PerfRules(topology=TOPOLOGY, batch=128)
COST = TorchRecCost(rules=RULES)
TABLE = Table(name="t", rows=1000, dim=128, pooling=10)

PLACED = {
    TABLE_WISE: Placement(TABLE_WISE, (5,)),
    COLUMN_WISE: Placement(COLUMN_WISE, (3, 1, 2, 0)),
    ROW_WISE: Placement(ROW_WISE),
    TABLE_ROW_WISE: Placement(TABLE_ROW_WISE, (1,)),
    GRID: Placement(GRID, (0, 1)),
    DATA_PARALLEL: Placement(DATA_PARALLEL),
}


def test_ranks_of_shards() -> None:
    """Shards go to the ranks of their placement: a rank, a node, or all."""
    expected = {
        TABLE_WISE: [5],
        COLUMN_WISE: [3, 1, 2, 0],
        ROW_WISE: list(range(16)),
        TABLE_ROW_WISE: list(range(8, 16)),
        GRID: list(range(16)),
        DATA_PARALLEL: list(range(16)),
    }
    found = {
        kind: [shard.rank for shard in COST.shards(TABLE, place)]
        for kind, place in PLACED.items()
    }
    assert expected == found


def test_times_on_two_nodes() -> None:
    """Node by node rows cross the network once for each node; columns make no blocks.

    The bytes are 1,280 lookups of 128 floats a rank, and 128 bags of as many.
    """
    bag = 128 * 128 * 4
    link, card = 600 * GIB, 12.5 * GIB
    expected = {
        TABLE_WISE: 16 * bag / card,
        COLUMN_WISE: 16 * bag / 4 / card,
        ROW_WISE: 16 * bag / card,
        TABLE_ROW_WISE: 16 * bag / link + 2 * bag / card,
        GRID: (16 * bag / link + 2 * bag / card) / 2,
        DATA_PARALLEL: 0.0,
    }
    found = {kind: _shard(kind).loads[1] for kind in PLACED}
    assert pytest.approx(expected) == found


def _shard(kind: str, table: Table = TABLE, cost: TorchRecCost = COST) -> Shard:
    return cost.shards(table, PLACED[kind])[0]


def test_narrow_rows_take_longer() -> None:
    """Less than 128 columns pay 1.15, less than 64 pay 1.75, less than 32 read 32."""
    times = {dim: _forward_s(dim) for dim in (16, 32, 64, 128)}
    lookups, bags, indices = 16 * 1280 * 4, 16 * 128 * 4, 16 * 1280 * 8
    expected = {
        dim: (indices + lookups * max(dim, 32) + bags * dim) * penalty / (897 * GIB)
        for dim, penalty in {16: 1.75, 32: 1.75, 64: 1.15, 128: 1.0}.items()
    }
    assert pytest.approx(expected) == times


def _forward_s(dim: int) -> float:
    return _shard(TABLE_WISE, attrs.evolve(TABLE, dim=dim)).loads[0]


def test_weighted_rows() -> None:
    """Weights come with the indices and have a gradient of their own."""
    weighted = attrs.evolve(TABLE, weighted=True)
    plain, more = _shard(ROW_WISE).loads, _shard(ROW_WISE, weighted).loads
    indices_s = 1280 * 8 / (897 * GIB)
    assert pytest.approx(plain[0] + indices_s) == more[0]
    assert pytest.approx(3.1 * more[0]) == more[2]


def test_half_precision_rows() -> None:
    """Rows of two bytes halve what is sent and what is kept."""
    half = attrs.evolve(TABLE, element_bytes=2)
    assert _shard(TABLE_WISE).loads[1] == 2 * _shard(TABLE_WISE, half).loads[1]
    one, other = (_weights(table) for table in (TABLE, half))
    assert one.hbm_bytes == 2 * other.hbm_bytes


def _weights(table: Table) -> Storage:
    """Return what a table takes where nothing runs."""
    cost = TorchRecCost(rules=attrs.evolve(RULES, inference=True))
    return cost.storage(table, PLACED[TABLE_WISE])[0][1]


def test_more_than_two_nodes_reduce_twice_as_long() -> None:
    """All-reduce takes 3/2 of the table from two nodes on, twice that beyond."""
    seconds: dict[int, float] = {}
    for nodes in (1, 2, 3, 4):
        topology = Topology(world=World(nodes * 8, 8))
        cost = TorchRecCost(rules=PerfRules(topology=topology))
        update_s = TABLE.bytes * 9.22 / (0.5 * 897 * GIB)
        seconds[nodes] = _shard(DATA_PARALLEL, cost=cost).loads[3] - update_s
    table_s = TABLE.bytes / (8 * 12.5 * GIB)
    assert pytest.approx({1: 1.0, 2: 1.5, 3: 3.0, 4: 3.0}) == {
        nodes: found / table_s for nodes, found in seconds.items()
    }


def test_host_memory_kernels() -> None:
    """A kernel of its own is what the placement says; rows then lie on the host."""
    place = attrs.evolve(PLACED[TABLE_WISE], compute_kernel="fused_uvm")
    fused, uvm = _shard(TABLE_WISE), COST.shards(TABLE, place)[0]
    assert pytest.approx(fused.loads[0] * 897 / 3.2) == uvm.loads[0]
    storage = COST.storage(TABLE, place)[0][1]
    assert TABLE.bytes == storage.ddr_bytes
    assert fused.memory_bytes - TABLE.bytes == storage.hbm_bytes
    prefetched = attrs.evolve(
        COST, constraints={"t": Constraints(cache_load_factor=0.5, prefetch=True)}
    )
    cached = attrs.evolve(place, compute_kernel="fused_uvm_caching")
    assert fused.loads[0] == prefetched.shards(TABLE, cached)[0].loads[0]


def test_cpu() -> None:
    """On CPUs rows come at the speed of the host's memory, and lie there."""
    topology = attrs.evolve(TOPOLOGY, device="cpu")
    cost = TorchRecCost(rules=PerfRules(topology=topology, batch=128))
    on_gpu, on_cpu = _shard(TABLE_WISE), _shard(TABLE_WISE, cost=cost)
    assert pytest.approx(on_gpu.loads[0] * 897 / 51) == on_cpu.loads[0]
    storage = cost.storage(TABLE, PLACED[TABLE_WISE])[0][1]
    assert (0, on_gpu.memory_bytes) == (storage.hbm_bytes, storage.ddr_bytes)
    place = attrs.evolve(PLACED[TABLE_WISE], compute_kernel="fused_uvm")
    with pytest.raises(UsageError, match="'fused_uvm' is none of dense, fused, quant"):
        cost.shards(TABLE, place)


def test_inference_runs_forward_only() -> None:
    """Without a backward pass three of the times are none, whatever the kind."""
    cost = TorchRecCost(rules=attrs.evolve(RULES, inference=True))
    for kind in (TABLE_WISE, ROW_WISE, GRID):
        loads = _shard(kind, cost=cost).loads
        assert (0.0, 0.0, 0.0) == loads[2:]
        assert _shard(kind).loads[:2] == loads[:2]


@pytest.mark.parametrize(
    ("optimizer", "per_element"),
    [
        ("sgd", 4),
        ("adam", 12),
        ("adamw", 8),
        ("adagrad", 8),
        ("rowwise_adagrad", 4 + 4 / 128),
    ],
)
def test_optimizer_states(optimizer: str, per_element: float) -> None:
    """Adam keeps two states of an element, row-wise Adagrad one of a row."""
    rules = StorageRules(perf=RULES, optimizer=optimizer)
    cost = attrs.evolve(COST, storage_rules=rules)
    exchanged = 16 * 128 * (10 * 8 + 128 * 4)
    expected = 1000 * 128 * per_element + exchanged
    assert expected == _shard(TABLE_WISE, cost=cost).memory_bytes


def test_pipelines_hold_inputs_of_several_batches() -> None:
    """Inputs count two or three times, and in a burst for a cached table."""
    inputs, outputs = 16 * 1280 * 8, 16 * 128 * 512
    weights, cached = 512_000, 0.2 * 512_000 + 1000 * (4 + 16 * 0.2)
    place = PLACED[TABLE_WISE]
    on_host = attrs.evolve(place, compute_kernel="fused_uvm_caching")
    found: dict[tuple[str, bool], tuple[float, float]] = {}
    for pipeline in ("none", "sparse_dist", "prefetch_sparse_dist"):
        for at_peak in (False, True):
            rules = StorageRules(perf=RULES, pipeline=pipeline, at_peak=at_peak)
            cost = attrs.evolve(COST, storage_rules=rules)
            both = [
                cost.storage(TABLE, each)[0][1].hbm_bytes for each in (place, on_host)
            ]
            found[pipeline, at_peak] = (both[0] - weights, both[1] - int(cached))
    assert {
        ("none", False): (inputs + outputs,) * 2,
        ("none", True): (inputs + outputs,) * 2,
        ("sparse_dist", False): (2 * inputs,) * 2,
        ("sparse_dist", True): (2 * inputs + outputs,) * 2,
        ("prefetch_sparse_dist", False): (3 * inputs, 10 * inputs),
        ("prefetch_sparse_dist", True): (3 * inputs + outputs, 10 * inputs + outputs),
    } == found


def test_rows_that_do_not_share_evenly() -> None:
    """The last ranks hold fewer rows, or none; ten rows on 16 ranks leave six bare."""
    few = attrs.evolve(TABLE, rows=10)
    memory = [storage.hbm_bytes for _, storage in COST.storage(few, PLACED[ROW_WISE])]
    assert [True] * 10 + [False] * 6 == [taken > 0 for taken in memory]


def test_key_value_store() -> None:
    """Rows lie on the drive; the device has the cache that is said, no more."""
    said = Constraints(key_value_cache_bytes=1000)
    cost = attrs.evolve(COST, constraints={"t": said})
    place = attrs.evolve(PLACED[TABLE_WISE], compute_kernel="key_value")
    storage = cost.storage(TABLE, place)[0][1]
    held = 16 * 128 * (10 * 8 + 128 * 4)
    assert 1000 + held == storage.hbm_bytes
    assert storage.ddr_bytes == 0
    assert 512_000 + 1000 * (4 + 0.2 * 16) == storage.ssd_bytes


def test_miss_rate_by_stack_distance() -> None:
    """A cache of k rows serves the bin of distance k - 1 and all before it."""
    stats = CacheStats(lookups=1, histogram=(50, 30, 0, 20))
    factors = (0.0, 0.1, 0.5, 0.55, 0.75, 1.0)
    found = [stats.miss_rate(factor, 20) for factor in factors]
    assert pytest.approx([1.0, 0.5, 0.2, 0.2, 0.2, 0.0]) == found
    unused = CacheStats(lookups=1, histogram=(0, 0))
    assert unused.miss_rate(0.0, 20) == 0


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=20),
    st.integers(1, 10**8),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_larger_caches_miss_less(
    counts: list[float], rows: int, one: float, other: float
) -> None:
    """The rate is a part of one, and falls as the cache grows."""
    stats = CacheStats(lookups=1, histogram=tuple(counts))
    small, large = (stats.miss_rate(part, rows) for part in sorted((one, other)))
    assert 0 <= large <= small <= 1


ANY_TABLE = st.builds(
    Table,
    name=st.just("t"),
    rows=st.integers(1, 10**9),
    dim=st.sampled_from([4, 8, 64, 512]),
    pooling=st.floats(0, 1000),
    element_bytes=st.sampled_from([1.0, 2.0, 4.0]),
    weighted=st.booleans(),
)


@given(ANY_TABLE, st.sampled_from(sorted(PLACED)))
def test_loads_are_times(table: Table, kind: str) -> None:
    """Whatever the table and the kind, times and memory are finite, none negative."""
    place = Placement(kind, PLACED[kind].places[:1])
    for shard in COST.shards(table, place):
        assert len(COST.resources) == len(shard.loads)
        assert all(0 <= load < math.inf for load in shard.loads)
        assert shard.memory_bytes >= 0


@given(st.lists(ANY_TABLE, min_size=2, max_size=5), st.data())
def test_more_tables_never_lower_the_score(
    tables: list[Table], data: st.DataObject
) -> None:
    """A plan of some tables takes no longer than the plan of all of them."""
    named = [attrs.evolve(table, name=f"t{at}") for at, table in enumerate(tables)]
    ranks = st.integers(0, WORLD.ranks - 1)
    plan = {t.name: Placement(TABLE_WISE, (data.draw(ranks),)) for t in named}
    fewer = {table.name: plan[table.name] for table in named[1:]}
    all_ = plan_times(COST, named, {"": plan}, WORLD)[""]
    assert plan_times(COST, named[1:], {"": fewer}, WORLD)[""] <= all_


def test_steps_are_priced_together() -> None:
    """A step is the largest sum of a rank, of many plans at once."""
    loads = np.arange(2 * 3 * 5, dtype=np.float64).reshape(2, 3, 5)
    assert [60.0, 135.0] == COST.step_s(loads).tolist()
    assert COST.step_s(loads[0]).shape == ()


def test_reserve() -> None:
    """15 % of a device are kept free, and six times the dense parameters."""
    free = Topology(world=WORLD, hbm_bytes=100.0).free_hbm_bytes(dense_bytes=2.0)
    assert pytest.approx(73.0) == free


def test_bad_topologies() -> None:
    """Ranks that fill no whole nodes, and speeds of nought, are refused."""
    with pytest.raises(UsageError, match="expected whole nodes of ranks, found 6"):
        Topology(world=World(6, 4))
    with pytest.raises(UsageError, match="hbm_bytes_per_s is 0"):
        Topology(world=WORLD, hbm_bytes_per_s=0)
    with pytest.raises(UsageError, match="inter_bytes_per_s is nan"):
        TwoTierNetwork(inter_bytes_per_s=math.nan)
    with pytest.raises(UsageError, match="batch is 0"):
        PerfRules(topology=TOPOLOGY, batch=0)


def test_bad_options() -> None:
    """Options that are unknown or cannot be are refused."""
    with pytest.raises(UsageError, match="sharding type 'whole' is none of table_wise"):
        RULES.perf(TABLE, "whole", "fused", 128)
    with pytest.raises(UsageError, match="sharding type 'whole' is none of table_wise"):
        StorageRules(perf=RULES).storage(TABLE, "whole", "fused", ShardSize(1, 1))
    with pytest.raises(UsageError, match="optimizer 'lion' is none of sgd, adam"):
        StorageRules(perf=RULES, optimizer="lion")
    with pytest.raises(UsageError, match="device 'tpu' is none of cuda, cpu"):
        Topology(world=WORLD, device="tpu")
    with pytest.raises(UsageError, match=r"cache_load_factor 1\.5"):
        Constraints(cache_load_factor=1.5)
    with pytest.raises(UsageError, match="compute kernel 'fast' is none of dense"):
        StorageRules(perf=RULES).storage(TABLE, TABLE_WISE, "fast", ShardSize(1, 1))
    with pytest.raises(UsageError, match="key_value_cache_bytes -1"):
        Constraints(key_value_cache_bytes=-1)
    with pytest.raises(UsageError, match="the histogram is empty"):
        CacheStats(lookups=1, histogram=())
    with pytest.raises(UsageError, match="expected counts of 0 or more"):
        CacheStats(lookups=1, histogram=(math.nan,))


@pytest.mark.parametrize("field", ["rows", "dim", "pooling"])
@pytest.mark.parametrize("value", [-1, math.nan])
def test_bad_tables(field: str, value: float) -> None:
    """A table that cannot be is refused by name."""
    sizes = {"rows": 1.0, "dim": 1.0, "pooling": 1.0, field: value}
    rows, dim = cast("int", sizes["rows"]), cast("int", sizes["dim"])
    table = Table(name="t", rows=rows, dim=dim, pooling=sizes["pooling"])
    with pytest.raises(PerfcError, match=f"table 't': {field} is"):
        COST.shards(table, PLACED[TABLE_WISE])


def test_bad_placements() -> None:
    """Columns that do not go evenly, and nodes that are not there, are refused."""
    with pytest.raises(PerfcError, match="do not share 128 columns evenly"):
        COST.shards(TABLE, Placement(COLUMN_WISE, (0, 1, 2)))
    with pytest.raises(PerfcError, match="expected one node of 0 to 1"):
        COST.shards(TABLE, Placement(TABLE_ROW_WISE, (2,)))
