"""Ranks that share a host, its cores, and servers over the network."""

from __future__ import annotations

import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.costmodels.tiers.made import a_host

from perfc.costmodels import load_target
from perfc.costmodels.machine import HostResources
from perfc.costmodels.tiers import (
    RANDOM_SHARE,
    Cluster,
    HostLookups,
    RemoteLookups,
    host_lookups,
    lookup_s,
    remote_lookups,
    remote_step_s,
    row_reads,
    training_rate,
)
from perfc.ir import PerfcError

HOSTS = st.builds(
    a_host,
    sockets=st.integers(1, 8),
    per_link=st.floats(1e9, 1e11),
    ranks_per_uplink=st.integers(1, 8),
    uplink_bytes_per_s=st.floats(1e9, 1e11),
    dram_bytes_per_s=st.floats(1e9, 1e12),
)
RANKS = st.integers(1, 16)
WORK = HostLookups(lookups=100_000, row_bytes=256, pooled_bytes=2e6)
LINK = 1.2e10


def _resources(name: str) -> HostResources:
    found = load_target(name).resources
    assert found is not None
    return found


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_ranks_on_one_uplink_take_so_many_times_as_long(ranks: int) -> None:
    """Where the uplink binds; a fifth rank has another one."""
    host = a_host(1, dram_bytes_per_s=1e15)
    slow = attrs.evolve(host, uplink_bytes_per_s=1e9)
    one = row_reads(slow, LINK, 1, 1e9)

    found = row_reads(slow, LINK, ranks, 1e9)
    assert ("uplink", 1.0) == (one.bound, one.seconds)
    assert ranks * one.seconds == pytest.approx(found.seconds)
    assert (
        row_reads(slow, LINK, 4, 1e9).seconds == row_reads(slow, LINK, 5, 1e9).seconds
    )


def test_one_rank_on_one_socket_has_the_link_alone() -> None:
    """Nothing contends: neither memory nor uplink nor socket."""
    busy = row_reads(a_host(1), LINK, 1, 1e9)

    assert ("link", 1e9 / LINK) == (busy.bound, busy.seconds)
    assert 0 == busy.parts["sockets"]


def test_the_parts_of_a_read_by_hand() -> None:
    """Eight ranks of 1 GB each, two sockets: half of the bytes are remote."""
    busy = row_reads(a_host(2, 2e10), LINK, 8, 1e9, share=0.5)

    assert 8 / (0.5 * 200) == pytest.approx(busy.parts["DRAM"])
    assert 4 / 15 == pytest.approx(busy.parts["uplink"])
    assert 8 * 0.5 / 20 == pytest.approx(busy.parts["sockets"])
    assert 1 / 12 == pytest.approx(busy.parts["link"])
    assert "uplink" == busy.bound


@given(host=HOSTS, ranks=RANKS, nbytes=st.floats(0, 1e10), faster=st.floats(1, 10))
def test_no_better_host_makes_a_read_longer(
    host: HostResources, ranks: int, nbytes: float, faster: float
) -> None:
    """Time rises with ranks and bytes, and falls in each rate."""
    busy = row_reads(host, LINK, ranks, nbytes)

    assert busy.seconds <= row_reads(host, LINK, ranks + 1, nbytes).seconds
    assert busy.seconds <= row_reads(host, LINK, ranks, nbytes * faster).seconds
    assert row_reads(host, LINK * faster, ranks, nbytes).seconds <= busy.seconds
    for field in (
        "dram_bytes_per_s",
        "uplink_bytes_per_s",
        "inter_socket_bytes_per_s",
    ):
        better = attrs.evolve(host, **{field: getattr(host, field) * faster})
        assert row_reads(better, LINK, ranks, nbytes).seconds <= busy.seconds
        after = host_lookups(better, LINK, ranks, WORK)
        assert after.seconds <= host_lookups(host, LINK, ranks, WORK).seconds
    assert nbytes * ranks / (RANDOM_SHARE * host.dram_bytes_per_s) <= busy.seconds


@given(ranks=RANKS, sockets=st.integers(1, 7), link=st.floats(2.5e10, 1e11))
def test_more_sockets_never_slow_the_cores(
    ranks: int, sockets: int, link: float
) -> None:
    """Each brings memory, cores and links no slower than half of what rows reach."""
    few, many = (
        host_lookups(a_host(s, link), LINK, ranks, WORK) for s in (sockets, sockets + 1)
    )

    assert many.pooling.seconds < few.pooling.seconds
    assert many.seconds <= few.seconds


def test_lookups_by_cores_by_hand() -> None:
    """Four ranks share 40 cores; pooled rows share the uplink, half of them remote."""
    found = host_lookups(a_host(2), LINK, 4, WORK, share=0.5)
    each = 19.86e-9 + (256 - 64) / 10e9

    assert each == pytest.approx(lookup_s(256))
    assert 4 * 1e5 * each / 40 == pytest.approx(found.pooling.parts["cores"])
    assert 4 * 1e5 * 256 / (0.5 * 2e11) == pytest.approx(found.pooling.parts["DRAM"])
    assert 4 * 2e6 / 1.5e10 == pytest.approx(found.transfer.parts["uplink"])
    assert 4 * 1e6 / 2e10 == pytest.approx(found.transfer.parts["sockets"])
    assert found.seconds == found.pooling.seconds + found.transfer.seconds


@given(size=st.integers(1, 4096), cached=st.floats(0, 1), more=st.integers(1, 512))
def test_a_core_takes_longer_for_more_bytes_and_fewer_hits(
    size: int, cached: float, more: int
) -> None:
    """No row is free, and one in a cache is no slower than one in memory."""
    assert 0 < lookup_s(size, 1.0) <= lookup_s(size, cached) <= lookup_s(size)
    assert lookup_s(size) <= lookup_s(size + more)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_zion_is_never_slower_than_big_basin_where_host_memory_is_read(
    ranks: int,
) -> None:
    """By GPUs or by cores; of all ranks it is faster."""
    basin, zion = _resources("big-basin"), _resources("zion")
    link = load_target("big-basin").host_link.h2d_bytes_per_s
    assert link == load_target("zion").host_link.h2d_bytes_per_s

    uvm = [row_reads(host, link, ranks, 1e9).seconds for host in (basin, zion)]
    host = [host_lookups(h, link, ranks, WORK).seconds for h in (basin, zion)]
    assert uvm[1] <= uvm[0]
    assert host[1] <= host[0]
    if ranks == 8:
        assert uvm[1] < uvm[0]
        assert host[1] < host[0]


def test_no_ranks_are_refused() -> None:
    """One line each."""
    with pytest.raises(PerfcError, match="0 ranks on a host: expected at least 1"):
        row_reads(a_host(), LINK, 0, 1)
    with pytest.raises(PerfcError, match="2 trainers and 0 servers: expected"):
        _cluster(2, 0)


def _cluster(trainers: int, servers: int) -> Cluster:
    return Cluster(
        trainers=trainers,
        servers=servers,
        trainer_nic_bytes_per_s=3e9,
        server_nic_bytes_per_s=3e9,
    )


ASKED = RemoteLookups(sent_bytes=1e6, received_bytes=6e6, server_s=0.004)


def test_remote_lookups_by_hand() -> None:
    """Eight trainers, two servers: each direction of a NIC by itself."""
    busy = remote_lookups(_cluster(8, 2), ASKED)

    assert {"trainer NIC": 0.002, "server NIC": 0.008, "servers": 0.016} == busy.parts
    assert 0.016 == remote_step_s(_cluster(8, 2), ASKED, 0.01)
    assert 0.02 == remote_step_s(_cluster(8, 2), ASKED, 0.02)
    waits = remote_step_s(_cluster(8, 2), ASKED, 0.01, sync=True)
    assert 0.01 + 50e-6 + 0.016 == pytest.approx(waits)
    rate = training_rate(_cluster(8, 2), ASKED, 0.01, 200)
    assert ("servers", 8 * 200 / 0.016) == (rate.bound, rate.per_s)


@given(
    trainers=st.integers(1, 64),
    servers=st.integers(1, 64),
    step=st.floats(1e-4, 1),
    batch=st.floats(1, 1e4),
)
def test_more_machines_never_slow_training(
    trainers: int, servers: int, step: float, batch: float
) -> None:
    """Throughput is the least of trainers, servers and NICs; waiting is no quicker."""
    cluster = _cluster(trainers, servers)
    rate = training_rate(cluster, ASKED, step, batch)

    for larger in (_cluster(trainers + 1, servers), _cluster(trainers, servers + 1)):
        more = training_rate(larger, ASKED, step, batch)
        assert more.per_s >= rate.per_s * (1 - 1e-12)
    seconds = remote_step_s(cluster, ASKED, step)
    assert trainers * batch / seconds == pytest.approx(rate.per_s)
    assert seconds <= remote_step_s(cluster, ASKED, step, sync=True)
    assert math.isfinite(rate.per_s)
