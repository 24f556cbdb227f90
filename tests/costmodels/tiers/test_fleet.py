"""Fleets of hosts, and training on tiers: scenarios, energy, wear, nodes."""

from __future__ import annotations

import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.costmodels.tiers.made import TABLES, TIERS, a_table, a_tier

from perfc.costmodels import load_target
from perfc.costmodels.locality import Uniform
from perfc.costmodels.machine import Tier
from perfc.costmodels.sheets import find_tier, load_memory
from perfc.costmodels.tiers import (
    HostGroup,
    QueryDemand,
    ReadPlan,
    TieredTable,
    drive_writes_per_day,
    hosts_for,
    nodes_needed,
    queries_per_host,
    samples_per_joule,
    saving,
    training_time,
    training_traffic,
    wear_warning,
)
from perfc.ir import PerfcError


def _hosts(load: float, each: float, watts: float) -> HostGroup:
    return HostGroup(hosts=hosts_for(load, each), host_watts=watts)


def test_smaller_hosts_that_are_twice_as_many() -> None:
    """240 to 120 queries a second each at 0.4 of the power: 20 %."""
    base, plan = _hosts(288_000, 240, 1.0), _hosts(288_000, 120, 0.4)

    assert (1200, 2400) == (base.hosts, plan.hosts)
    assert 0.2 == saving([base], [plan])


def test_hosts_without_those_that_held_their_tables() -> None:
    """300 memory hosts at a quarter of the power beside 1,500: one in 21."""
    hosts = HostGroup(hosts=1500, host_watts=1.0)

    assert 1 / 21 == saving([hosts, HostGroup(hosts=300, host_watts=0.25)], [hosts])


def test_hosts_that_are_used_more() -> None:
    """Utilisation 0.63 to 0.90 at 1.01 of the power: 29.3 %."""
    base = HostGroup(hosts=1, host_watts=1.0, utilisation=0.63)
    plan = HostGroup(hosts=1, host_watts=1.01, utilisation=0.90)

    assert 0.707 == pytest.approx(1 - saving([base], [plan]), rel=1e-9)
    assert 0.293 == pytest.approx(saving([base], [plan]), rel=1e-9)


@given(load=st.floats(1, 1e6), each=st.floats(0.1, 1e4), more=st.floats(1, 10))
def test_hosts_serve_their_load_with_none_too_many(
    load: float, each: float, more: float
) -> None:
    """One fewer would not do; more queries a host never take more hosts."""
    hosts = hosts_for(load, each)

    assert hosts * each >= load * (1 - 1e-9)
    assert (hosts - 1) * each < load
    assert hosts_for(load, each * more) <= hosts <= hosts_for(load * more, each)


@pytest.mark.parametrize("count", [1, 3, 7, 49, 1200])
def test_a_whole_number_of_hosts_is_not_rounded_up(count: int) -> None:
    """The last digits of a division make no host."""
    assert count == hosts_for(0.1 * count, 0.1)


def test_queries_of_a_host_by_hand() -> None:
    """Four fifths of the drive's reads, half a second of compute, DRAM, a latency."""
    demand = QueryDemand(
        compute_s=0.002, dram_bytes=1e8, block_reads=1000, bus_bytes=1e5
    )
    found = queries_per_host(demand, 8e10, ReadPlan(tier=a_tier(), within_s=1.6e-4))

    within = 5e5 * (1 - 0.5**1.5) ** (1 / 1.5) / 1000
    assert {
        "compute": 500.0,
        "DRAM": 800.0,
        "reads": 400.0,
        "bandwidth": 30_000.0,
        "latency": pytest.approx(within),
    } == found.parts
    assert "latency" == found.bound
    assert within == pytest.approx(found.per_s)
    assert 500 == queries_per_host(QueryDemand(compute_s=0.002)).per_s
    assert math.inf == queries_per_host(QueryDemand()).per_s


@given(tier=TIERS, reads=st.floats(1, 1e4), faster=st.floats(1, 10))
def test_a_better_tier_never_serves_fewer(
    tier: Tier, reads: float, faster: float
) -> None:
    """Nor do fewer reads a query, as of a larger cache; nor a looser target."""
    demand = QueryDemand(block_reads=reads, bus_bytes=reads * 512)
    plan = ReadPlan(tier=tier, within_s=2 * tier.read_latency_s)
    found = queries_per_host(demand, plan=plan).per_s

    for field in ("reads_per_s", "read_bytes_per_s"):
        better = attrs.evolve(tier, **{field: getattr(tier, field) * faster})
        more = queries_per_host(demand, plan=attrs.evolve(plan, tier=better))
        assert more.per_s >= found
    fewer = QueryDemand(block_reads=reads / faster, bus_bytes=reads * 512)
    assert queries_per_host(fewer, plan=plan).per_s >= found
    loose = attrs.evolve(plan, within_s=plan.within_s * faster)
    assert queries_per_host(demand, plan=loose).per_s >= found


def test_drives_add_to_the_power_of_their_hosts() -> None:
    """With their own watts when they are read."""
    optane = load_memory("optane").times(2)

    assert 3 * (220 + 16) == HostGroup(hosts=3, host_watts=220, tiers=(optane,)).watts
    assert -1 == saving(
        [HostGroup(hosts=1, host_watts=16)],
        [HostGroup(hosts=1, host_watts=16, tiers=(optane,))],
    )


@given(rate=st.floats(1, 1e7), watts=st.floats(1, 1e5))
def test_samples_a_joule_times_watts_are_samples_a_second(
    rate: float, watts: float
) -> None:
    """Energy and power say the same."""
    assert rate == pytest.approx(samples_per_joule(rate, watts) * watts)


def test_a_drive_endures_so_many_writes() -> None:
    """375 GB refreshed once a day is one write; a refresh each hour takes 24."""
    optane = load_memory("optane")

    assert 1 == drive_writes_per_day(optane, 375e9, 1)
    assert "" == wear_warning(optane, 375e9, 1 / 24)
    assert "is written 48 times a day, more than the 30 that it endures" in (
        wear_warning(optane, 375e9, 1 / 48)
    )
    assert "" == wear_warning(a_tier(), 1e15, 1)


def test_training_reads_and_writes_by_hand() -> None:
    """Without a cache each row of a batch is read twice and written once."""
    table = a_table(rows=1000, lookups=1.0, popularity=Uniform())
    touched = 1000 * (1 - (1 - 1 / 1000) ** 200)
    traffic = training_traffic(table, a_tier(), 200)

    assert 2 * touched == pytest.approx(traffic.block_reads)
    assert touched == pytest.approx(traffic.block_writes)
    assert touched * 4096 == pytest.approx(traffic.written_bytes)
    busy = training_time(a_tier(), [traffic])
    assert 2 * touched / 5e5 + touched / 2e5 == pytest.approx(busy.parts["commands"])
    assert 0 == training_traffic(table, a_tier(), 200, 1000).block_reads


@given(
    table=TABLES,
    tier=TIERS,
    batch=st.integers(1, 4096),
    low=st.floats(0, 1),
    high=st.floats(0, 1),
    faster=st.floats(1, 10),
)
def test_no_larger_cache_and_no_better_tier_slow_training(
    table: TieredTable, tier: Tier, batch: int, low: float, high: float, faster: float
) -> None:
    """Traffic falls in the cache and rises in the batch; time falls in each rate."""
    low, high = sorted((low, high))
    less, more = (
        training_traffic(table, tier, batch, c * table.rows) for c in (low, high)
    )

    assert more.block_reads <= less.block_reads * (1 + 1e-6) + 1e-6
    assert more.block_writes <= less.block_writes * (1 + 1e-6) + 1e-6
    plain = training_traffic(table, tier, batch)
    assert plain.block_reads <= training_traffic(table, tier, 2 * batch).block_reads
    before = training_time(tier, [less]).seconds
    for field in ("reads_per_s", "writes_per_s", "read_bytes_per_s"):
        better = attrs.evolve(tier, **{field: getattr(tier, field) * faster})
        assert training_time(better, [less]).seconds <= before * (1 + 1e-12)


def test_tiers_save_nodes() -> None:
    """20 TB in 1 TB of DRAM a node, or in that and four drives of 750 GB."""
    dram = a_tier(name="dram", capacity_bytes=1e12)
    drives = load_memory("optane-p4800x-750g").times(4)

    assert (20, 5) == (nodes_needed(20e12, [dram]), nodes_needed(20e12, [dram, drives]))


@given(nbytes=st.integers(0, 10**15), tiers=st.lists(TIERS, min_size=1, max_size=3))
def test_another_tier_never_takes_more_nodes(nbytes: int, tiers: list[Tier]) -> None:
    """And the nodes have room for all."""
    nodes = nodes_needed(nbytes, tiers)

    assert nodes * sum(t.capacity_bytes for t in tiers) >= nbytes * (1 - 1e-12)
    assert nodes_needed(nbytes, [*tiers, a_tier()]) <= nodes


def test_a_servers_own_tiers_serve() -> None:
    """The names that a placement asks for lead to costs."""
    server = load_target("1s-server")
    demand = QueryDemand(block_reads=1000, bus_bytes=512_000)
    plan = ReadPlan(tier=find_tier(server, "optane"))

    found = queries_per_host(demand, plan=plan)
    assert "reads" == found.bound
    assert 880 == pytest.approx(found.per_s)


def test_what_cannot_be_is_refused() -> None:
    """One line each."""
    with pytest.raises(PerfcError, match=r"utilisation 0: expected more than 0"):
        _ = HostGroup(hosts=1, host_watts=1, utilisation=0).watts
    with pytest.raises(PerfcError, match="watts are not known; add power_read_w"):
        _ = HostGroup(hosts=1, host_watts=1, tiers=(a_tier(),)).watts
    with pytest.raises(PerfcError, match="on hosts that serve 0: expected more than"):
        hosts_for(1, 0)
    with pytest.raises(PerfcError, match="a base of 0 W"):
        saving([], [])
    with pytest.raises(PerfcError, match="0 W: expected more than 0"):
        samples_per_joule(1, 0)
    with pytest.raises(PerfcError, match="0 days between refreshes"):
        drive_writes_per_day(a_tier(), 1, 0)
    with pytest.raises(PerfcError, match="no tier holds anything"):
        nodes_needed(1, [])
