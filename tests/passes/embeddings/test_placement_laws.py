"""The laws of tables in host memory, in tiers, with cores and on servers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.passes.embeddings.placements import (
    BIG_BASIN,
    NODE,
    ZION,
    analyze,
    lookups_us,
    place,
)

import perfc
from perfc.costmodels import load_target, tiers
from perfc.ir import PerfcError
from perfc.tools import Report, load

QUICK = settings(max_examples=12, deadline=None, derandomize=True)


@pytest.mark.parametrize("tier", ["uvm", "uvm-caching"])
@pytest.mark.parametrize("mode", ["training", "inference"])
def test_one_rank_takes_what_the_link_takes(tier: str, mode: str) -> None:
    """One rank shares nothing: bit for bit as on a target that says no host."""
    times = {
        analyze(place(tier), target=target, mode=mode).time_us
        for target in (BIG_BASIN, ZION, "p3.16xlarge")
    }
    alone = load("dlrm-zion", batch=2048, mode=mode, transforms=(place(tier),))

    host = load_target("v100-sxm2-16g").host.overheads
    assert host == load_target(ZION).host.overheads
    assert {perfc.analyze(alone, target="v100-sxm2-16g").time_us} == times


def test_little_memory_binds_one_rank() -> None:
    """Unless the memory of the host is slower than the link."""
    slow = {"host.dram_gb_per_s": "10"}
    fast, bound = (
        lookups_us(analyze(place("uvm"), fields=fields)) for fields in ({}, slow)
    )
    link = load_target(ZION).host_link.h2d_bytes_per_s

    assert bound > fast
    assert bound / fast < link * 0.8 / (tiers.RANDOM_SHARE * 10e9) * 1.1


@pytest.mark.parametrize("tier", ["uvm", "uvm-caching", "host", "dram"])
def test_zion_is_faster_where_host_memory_is_read(tier: str) -> None:
    """Eight ranks of a node share less on Zion than on Big Basin."""
    old, new = (
        analyze(place(tier), target=target, ranks=NODE).time_us
        for target in (BIG_BASIN, ZION)
    )

    assert new < old


def test_both_take_as_long_where_none_is() -> None:
    """In device memory, inside a node, they are the same machine."""
    for ranks in (1, NODE):
        old, new = (
            analyze(place("hbm"), target=target, ranks=ranks).time_us
            for target in (BIG_BASIN, ZION)
        )
        assert old == new


@QUICK
@given(ranks=st.integers(2, NODE), gb_per_s=st.floats(1, 11))
def test_ranks_share_an_uplink_that_binds(ranks: int, gb_per_s: float) -> None:
    """So many ranks behind one switch take as many times as long as one."""
    fields = {"host.gpus_per_uplink": "8", "host.uplink_gb_per_s": f"{gb_per_s}"}
    one, several = (
        lookups_us(analyze(place("uvm"), ranks=count, fields=fields, pooling=64))
        for count in (1, ranks)
    )

    assert ranks * one == pytest.approx(several, rel=0.01)


def test_ranks_of_other_nodes_share_nothing() -> None:
    """Two nodes of eight take what one takes to read the host's memory."""
    one, two = (
        lookups_us(analyze(place("uvm"), target=BIG_BASIN, ranks=count))
        for count in (NODE, 2 * NODE)
    )

    assert one == two


@pytest.mark.parametrize("mode", ["training", "inference"])
def test_all_in_device_memory_is_no_placement(mode: str) -> None:
    """A plan of device memory alone is the step without the pass, bit for bit."""
    bare, placed = (
        analyze(*passes, mode=mode).to_json() for passes in ((), (place("hbm"),))
    )

    assert bare == placed


@QUICK
@given(
    batch=st.sampled_from([200, 800, 3200]),
    rows=st.sampled_from([20_000, 100_000, 1_000_000]),
    cache=st.floats(0.05, 1.0),
)
def test_the_order_of_the_three_places(batch: int, rows: int, cache: float) -> None:
    """Device memory is never slower than a cache, nor that than host memory alone."""
    hbm, cached, host = (
        analyze(placed, batch=batch, rows=rows).time_us
        for placed in (place("hbm"), place("uvm-caching", cache=cache), place("uvm"))
    )

    assert hbm <= cached * 1.0001
    assert cached <= host * 1.01


@QUICK
@given(
    tier=st.sampled_from(["hbm", "uvm", "host", "remote"]),
    target=st.sampled_from([BIG_BASIN, ZION, "2s-skylake"]),
    pooling=st.sampled_from([4, 32]),
)
def test_samples_do_not_fall_in_batch(tier: str, target: str, pooling: int) -> None:
    """A larger batch gives no fewer samples a second, within 1 %, to saturation."""
    rates = [
        analyze(place(tier), target=target, batch=batch, pooling=pooling).summary[
            "samples_per_s"
        ]
        for batch in (200, 400, 800, 1600, 3200, 6400)
    ]
    top = max(rates)
    until = next(n for n, rate in enumerate(rates) if rate > 0.97 * top)

    risen = itertools.pairwise(rates[: until + 1])
    assert all(later > 0.99 * first for first, later in risen)


@QUICK
@given(
    tier=st.sampled_from(["hbm", "uvm", "uvm-caching", "host", "remote"]),
    target=st.sampled_from([BIG_BASIN, ZION, "2s-skylake"]),
)
def test_samples_fall_in_tables(tier: str, target: str) -> None:
    """More tables give fewer samples a second, once they take longer than the host."""
    rates = [
        analyze(place(tier), target=target, tables=count, batch=3200).summary[
            "samples_per_s"
        ]
        for count in (4, 8, 16, 32, 64)
    ]

    assert all(fewer > more for fewer, more in itertools.pairwise(rates))


def fits(report: Report) -> bool:
    """Whether device memory holds what the step needs."""
    usable = report.target.device.memory.usable_bytes
    return bool(report.summary["peak_memory_bytes"] <= usable)


def best(rows: int, target: str) -> tuple[str, float]:
    """Return the fastest place of tables of so many rows that holds them."""
    found: dict[str, float] = {}
    for tier in ("hbm", "uvm", "remote"):
        more = {"servers": 16, "sync": True} if tier == "remote" else {}
        try:
            report = analyze(place(tier, **more), target=target, rows=rows, batch=1600)
        except PerfcError as error:
            assert "iB are missing" in str(error)  # noqa: PT017 - of some of them
            continue
        if fits(report):
            found[tier] = report.summary["samples_per_s"]
    tier = next(iter(found))  # the first that has room
    return tier, found[tier]


def test_samples_step_down_at_capacities() -> None:
    """As tables grow, samples a second are flat in a place, and fall to the next."""
    found = [best(10**n, BIG_BASIN) for n in (5, 6)]
    found += [best(rows, BIG_BASIN) for rows in (2_000_000, 6_000_000, 20_000_000)]
    places = [tier for tier, _ in found]

    assert ["hbm", "hbm", "hbm", "uvm", "uvm"] == places
    (_, first), (_, flat), (_, later), (_, stepped), (_, last) = found
    assert first >= flat * 0.99
    assert flat == pytest.approx(later, rel=0.02)
    assert stepped < 0.8 * later
    assert stepped >= last * 0.999


def over_cpu(**sizes: Any) -> float:
    """Return how many times as fast Big Basin's GPU is as a two-socket server."""
    gpu, cpu = (
        analyze(target=target, **sizes).time_us for target in (BIG_BASIN, "2s-skylake")
    )
    return cpu / gpu


def test_a_gpu_gains_with_batch_and_dense_features() -> None:
    """GPU over CPU rises with the batch, and with dense features until it is full."""
    batches = [over_cpu(batch=batch) for batch in (200, 800, 3200, 12800)]
    dense = [over_cpu(batch=800, dense=n, tables=4) for n in (64, 1024, 4096)]

    for ratios in (batches, dense):
        assert all(a < b for a, b in itertools.pairwise(ratios))


@QUICK
@given(ranks=st.sampled_from([1, 4, NODE]), batch=st.sampled_from([800, 6400]))
def test_more_sockets_never_slow_the_host(ranks: int, batch: int) -> None:
    """Each brings cores, memory and links of its own."""
    times = [
        analyze(
            place("host"),
            ranks=ranks,
            batch=batch,
            fields={
                "host.sockets": str(sockets),
                "host.dram_gb_per_s": f"{128 * sockets}",
                "host.inter_socket_gb_per_s": f"{31.2 * sockets}",
            },
        ).time_us
        for sockets in (1, 2, 4, 8)
    ]

    assert all(more <= fewer for fewer, more in itertools.pairwise(times))


@QUICK
@given(
    tier=st.sampled_from(["hbm", "uvm", "host", "remote"]),
    target=st.sampled_from([BIG_BASIN, ZION, "2s-skylake"]),
    batch=st.sampled_from([200, 3200]),
)
def test_samples_a_joule_times_watts(tier: str, target: str, batch: int) -> None:
    """Make samples a second; a rank draws its share of the node, and servers theirs."""
    summary = analyze(place(tier), target=target, batch=batch).summary
    node = load_target(target)
    assert node.node_power is not None
    share = 1 if node.system is None else 1 / node.system.gpus_per_node
    server = load_target("2s-skylake").node_power
    assert server is not None
    watts = node.node_power.active(target) * share
    watts += server.active("2s-skylake") if tier == "remote" else 0

    rate = summary["samples_per_j"] * watts
    assert rate == pytest.approx(summary["samples_per_s"], rel=1e-9)


def test_watts_are_those_of_all_ranks() -> None:
    """Eight ranks draw the whole node."""
    summary = analyze(place("uvm"), ranks=NODE).summary
    power = load_target(ZION).node_power

    assert power is not None
    rate = summary["samples_per_j"] * power.active(ZION)
    assert rate == pytest.approx(summary["samples_per_s"])
