"""Tables in tiers: lookups, hits and reads, and what they add up to."""

from __future__ import annotations

import itertools
import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.costmodels.tiers.made import TABLES, TIERS, a_table, a_tier

from perfc.costmodels import locality
from perfc.costmodels.locality import Uniform
from perfc.costmodels.machine import Tier
from perfc.costmodels.tiers import (
    TieredTable,
    cached_rows,
    check_cache,
    exposed_s,
    fastest_that_fits,
    pooled_hit_share,
    query_time,
    shared_cache,
    table_cost,
    tier_use,
)
from perfc.ir import PerfcError

FRACTION = st.floats(0, 1)


def test_a_table_without_a_cache_by_hand() -> None:
    """30 lookups of 128 B on blocks of 4 KiB: 30 reads, 32 times the bytes."""
    cost = table_cost(a_table(), a_tier())

    assert (30, 0, 30, 1, 32) == (
        cost.lookups,
        cost.hits,
        cost.reads,
        cost.blocks_per_row,
        cost.amplification,
    )
    assert (30 * 4096, 30 * 4096, 30 * 128) == (
        cost.media_bytes,
        cost.bus_bytes,
        cost.row_bytes,
    )
    assert 128_000_000 == cost.stored_bytes
    assert 30 * 128 / 128_000_000 == cost.density


def test_reads_of_parts_of_blocks_cross_the_bus_alone() -> None:
    """The medium reads the block, the bus carries the row."""
    cost = table_cost(a_table(), a_tier(bus_granularity_bytes=1))

    assert (30 * 4096, 30 * 128) == (cost.media_bytes, cost.bus_bytes)


def test_half_of_a_uniform_table_in_a_cache_is_half_of_the_reads() -> None:
    """And a cache of pooled rows leaves the rest of them."""
    table = a_table(popularity=Uniform())
    cost = table_cost(table, a_tier(), cached=500_000, pooled_share=0.2)

    assert 30 * 0.8 * 0.5 == pytest.approx(cost.reads, rel=1e-6)
    assert 0 == table_cost(table, a_tier(), cached=1_000_000).reads


@given(table=TABLES, tier=TIERS, cached=FRACTION, pooled=FRACTION)
def test_hits_and_reads_are_all_lookups(
    table: TieredTable, tier: Tier, cached: float, pooled: float
) -> None:
    """To 1e-9; and bytes shrink from the medium over the bus to the rows."""
    cost = table_cost(table, tier, cached * table.rows, pooled)

    assert table.lookups == pytest.approx(cost.hits + cost.reads, rel=1e-9)
    assert 0 <= cost.reads <= table.lookups * (1 + 1e-12)
    assert cost.media_bytes >= cost.bus_bytes * (1 - 1e-12)
    assert cost.bus_bytes >= cost.row_bytes * (1 - 1e-12)
    assert cost.media_bytes == pytest.approx(cost.row_bytes * cost.amplification)


@given(table=TABLES, tier=TIERS, low=FRACTION, high=FRACTION, pooled=FRACTION)
def test_more_cache_never_reads_more(
    table: TieredTable, tier: Tier, low: float, high: float, pooled: float
) -> None:
    """Of rows, and of pooled rows."""
    low, high = sorted((low, high))
    less, more = (table_cost(table, tier, c * table.rows) for c in (low, high))

    assert more.block_reads <= less.block_reads * (1 + 1e-9)
    assert table_cost(table, tier, low * table.rows, pooled).reads <= less.reads


@given(tables=st.lists(TABLES, min_size=1, max_size=4), low=FRACTION, high=FRACTION)
def test_a_shared_cache_holds_its_bytes(
    tables: list[TieredTable], low: float, high: float
) -> None:
    """All of it is used, no table has more rows than it has, and more hold more."""
    whole = sum(t.rows * (t.row_bytes + 16) for t in tables)
    low, high = sorted((low, high))
    few, many = (shared_cache(tables, share * whole) for share in (low, high))

    held = sum(n * (t.row_bytes + 16) for n, t in zip(few, tables, strict=True))
    assert low * whole == pytest.approx(held, rel=1e-3, abs=1.0)
    for table, less, more in zip(tables, few, many, strict=True):
        assert 0 <= less <= more * (1 + 1e-9) <= table.rows * (1 + 1e-8)


def test_a_cache_of_one_table_is_its_own() -> None:
    """Rows are those that have room; hotter tables get more than their share."""
    table = a_table()
    hot = attrs.evolve(table, name="hot", lookups=300.0)
    (alone,) = shared_cache([table], 144e5)
    cold, more = shared_cache([table, hot], 144e5)

    assert 1e5 == pytest.approx(alone, rel=1e-6) == pytest.approx(cold + more)
    assert cached_rows(144e5, 128) == 1e5
    assert more > 2 * cold
    assert [1e6, 0.0] == shared_cache([table, attrs.evolve(hot, lookups=0.0)], 1e12)


def test_a_shared_cache_agrees_with_a_trace() -> None:
    """LRU of two tables, simulated: misses are within 3 % of the lookups."""
    import numpy as np

    rng = np.random.default_rng(7)
    tables = [
        a_table(name="a", rows=2000, lookups=8.0, popularity=Uniform()),
        a_table(name="b", rows=4000, lookups=2.0, popularity=Uniform()),
    ]
    held, missed, order = 1500, {"a": 0, "b": 0}, dict[tuple[str, int], None]()
    queries, warm = 3000, 1000
    for query, table in itertools.product(range(queries), tables):
        for row in rng.integers(0, table.rows, int(table.lookups)):
            key = table.name, int(row)
            if key not in order:
                missed[table.name] += query >= warm
            order.pop(key, None)
            order[key] = None
            if len(order) > held:
                del order[next(iter(order))]
    shares = shared_cache(tables, held * 144.0)
    for table, cached in zip(tables, shares, strict=True):
        count = table.lookups * (queries - warm)
        expected = locality.lru_miss_share(table.popularity, table.rows, cached)
        assert expected == pytest.approx(missed[table.name] / count, abs=0.03)


def test_a_cache_of_pooled_rows_by_hand() -> None:
    """1,000 bags, each as often: a cache of a quarter hits a quarter."""
    share = pooled_hit_share(Uniform(), 1000, 250 * (256 + 8), 256)

    assert 0.25 == pytest.approx(share, rel=1e-3)
    assert 1 == pooled_hit_share(Uniform(), 1000, 1e9, 256)


@given(
    tier=TIERS,
    tables=st.lists(TABLES, min_size=1, max_size=3),
    faster=st.floats(1, 100),
    queue=st.floats(1, 500),
    part=st.floats(0, 0.99),
)
def test_no_better_tier_makes_a_query_wait_longer(
    tier: Tier,
    tables: list[TieredTable],
    faster: float,
    queue: float,
    part: float,
) -> None:
    """Time falls in each rate of a tier, alone, and is at least each part."""
    costs = [table_cost(table, tier) for table in tables]
    load = part * tier.reads_per_s
    before = query_time(tier, costs, queue, load)
    for field in ("reads_per_s", "read_bytes_per_s"):
        better = attrs.evolve(tier, **{field: getattr(tier, field) * faster})
        after = query_time(better, costs, queue, load)
        assert after.seconds <= before.seconds * (1 + 1e-12)
    sooner = attrs.evolve(tier, read_latency_s=tier.read_latency_s / faster)
    assert query_time(sooner, costs, queue, load).seconds <= before.seconds
    assert query_time(tier, costs, queue * 2, load).seconds <= before.seconds
    assert before.seconds == before.parts[before.bound]


def test_what_a_query_waits_for_by_hand() -> None:
    """40 reads of the largest table, 16 at a time: three times the latency."""
    tier, large = a_tier(), a_table(lookups=40.0)
    busy = query_time(tier, [table_cost(large, tier), table_cost(a_table(), tier)], 16)

    assert 3 * 8e-5 == pytest.approx(busy.parts["latency"])
    assert 70 / 5e5 == pytest.approx(busy.parts["reads"])
    assert 70 * 4096 / 3e9 == pytest.approx(busy.parts["bandwidth"])
    assert "latency" == busy.bound
    assert busy.parts["latency"] == busy.seconds
    assert 1e-4 == pytest.approx(exposed_s(busy.seconds, [1e-4, 4e-5]))
    assert 0 == exposed_s(1e-4, [2e-4])
    assert 1e-4 == exposed_s(1e-4)


def test_a_tier_in_use_adds_up() -> None:
    """Bytes, reads, watts: idle ones, and the share of those above that it works."""
    tier = a_tier(read_watts=9.0, idle_watts=4.0)
    use = tier_use(tier, [table_cost(a_table(), tier)] * 2, 1000)

    assert 2 * 128_000_000 == use.used_bytes
    assert (60_000, 60_000 * 4096) == (use.reads_per_s, use.read_bytes_per_s)
    assert 0.12 == use.utilisation
    assert 4 + 5 * 0.12 == pytest.approx(use.watts)
    assert use.in_flight == pytest.approx(60_000 * use.latency_s)


@pytest.mark.parametrize(
    ("changed", "queries", "message"),
    [
        ({"capacity_bytes": 1e8}, 1, "122 MiB do not fit into its 95.4 MiB; 26.7 MiB"),
        ({}, 20_000, "600,000 reads a second asked for, expected fewer than 500,000"),
        (
            {"read_bytes_per_s": 1e9},
            10_000,
            "1.229 GB/s asked for, expected less than 1 GB/s",
        ),
    ],
)
def test_what_a_tier_cannot_do_is_refused(
    changed: dict[str, object], queries: float, message: str
) -> None:
    """The line has what is asked, and what there is."""
    tier = a_tier(**changed)
    with pytest.raises(PerfcError) as caught:
        tier_use(tier, [table_cost(a_table(), tier)], queries)

    assert message in str(caught.value)


def test_what_cannot_be_is_refused() -> None:
    """One line each."""
    tier = a_tier()
    for wrong in ({"rows": 0}, {"lookups": -1.0}):
        with pytest.raises(PerfcError, match="table t: expected rows, lookups and"):
            table_cost(a_table(**wrong), tier)
    with pytest.raises(PerfcError, match=r"0\.5 reads in flight: expected at least 1"):
        query_time(tier, [], 0.5)
    with pytest.raises(PerfcError, match="drive: watts are not known; add power_read"):
        _ = tier_use(tier, [], 1).watts
    with pytest.raises(
        PerfcError, match=r"a cache of 74\.5 GiB: expected at most the 59\.6 GiB"
    ):
        check_cache(80e9, 64e9)
    check_cache(64e9, 64e9)


@given(sizes=st.lists(st.floats(1, 1e12), min_size=1, max_size=5), more=st.floats(1, 9))
def test_tables_step_down_at_each_capacity(sizes: list[float], more: float) -> None:
    """More bytes never lie in a faster tier, and each tier taken has their room."""
    tiers = [
        a_tier(name=f"t{i}", capacity_bytes=c) for i, c in enumerate(sorted(sizes))
    ]
    most = tiers[-1].capacity_bytes
    few = fastest_that_fits(most / more, tiers)
    many = fastest_that_fits(most, tiers)

    assert few.capacity_bytes >= most / more
    assert tiers.index(few) <= tiers.index(many)
    for at, tier in enumerate(tiers):
        assert tiers.index(fastest_that_fits(tier.capacity_bytes, tiers)) <= at
        if at + 1 < len(tiers) and tiers[at + 1].capacity_bytes > tier.capacity_bytes:
            past = math.nextafter(tier.capacity_bytes, math.inf)
            assert fastest_that_fits(past, tiers).capacity_bytes > tier.capacity_bytes


def test_what_fits_nowhere_says_what_is_missing() -> None:
    """In GiB, beside the tiers that were asked."""
    with pytest.raises(
        PerfcError, match=r"466 GiB fit nowhere \(drive\): 93.1 GiB are mi"
    ):
        fastest_that_fits(5e11, [a_tier()])
    with pytest.raises(PerfcError, match=r"466 GiB fit nowhere \(no tier\): 466 GiB"):
        fastest_that_fits(5e11, [])
