"""Tables in the memory of a node, in tiers, with its cores and on servers: the laws.

Ranks share what the sheet says that they share; what others do for the device runs
beside it, and the schedule says what of it is waited for.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfc
from perfc.costmodels import load_target, tiers
from perfc.ir import PerfcError, UsageError
from perfc.passes import Pass, ShardEmbeddings
from perfc.passes.embeddings import PlaceEmbeddings
from perfc.passes.parallel.data import DataParallel
from perfc.tools import Report, load

QUICK = settings(max_examples=12, deadline=None, derandomize=True)
BIG_BASIN, ZION = "big-basin", "zion"
NODE = 8


def analyze(  # noqa: PLR0913 - what the laws vary
    *transforms: Pass,
    target: str = ZION,
    batch: int = 2048,
    ranks: int = 1,
    mode: str = "training",
    fields: Mapping[str, str] | None = None,
    **sizes: object,
) -> Report:
    """Analyze the workload of the study."""
    model = "dlrm-zion:" + ",".join(f"{k}={v}" for k, v in sizes.items())
    replicas = (DataParallel(ranks),) if ranks > 1 else ()
    loaded = load(
        model.rstrip(":"), batch=batch, mode=mode, transforms=(*transforms, *replicas)
    )
    return perfc.analyze(loaded, target=load_target(target, dict(fields or {})))


def place(tier: str, **more: Any) -> PlaceEmbeddings:  # noqa: ANN401 - its options
    """Return the pass that puts all tables somewhere."""
    return PlaceEmbeddings(tier, **more)


def lookups_us(report: Report) -> float:
    """Return the time of kernels of tables outside of device memory."""
    return sum(
        node["duration_us"]
        for node in report.nodes
        if node["cost_model"] == "embedding-tiers"
    )


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
            assert "GB are missing" in str(error)  # noqa: PT017 - of some of them
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


def over_cpu(**sizes: Any) -> float:  # noqa: ANN401 - of the workload
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


def streams(report: Report) -> dict[str, tuple[float, float]]:
    """Return when each stream of the first rank begins and ends."""
    schedule, graph = report.results.schedule, report.results.hosted[0].graph
    found: dict[str, tuple[float, float]] = {}
    for task, number in enumerate(graph.resource):
        name = graph.resources[number].name
        start, end = schedule.starts_s[task], schedule.ends_s[task]
        first, last = found.get(name, (start, end))
        found[name] = min(first, start), max(last, end)
    return found


def test_what_others_do_runs_beside_the_device() -> None:
    """Cores look up while the bottom MLP runs; who reads pooled rows waits for them."""
    report = analyze(place("host"), batch=6400)
    waiting, ahead = (
        analyze(place("host", prefetch=on), batch=6400).time_us for on in (False, True)
    )
    device = report.summary["device_only_us"]

    assert {"cores", "pooled.in", "pooled.out"} <= streams(report).keys()
    assert ahead < waiting
    aside = sum(
        report.results.schedule.durations_s[task]
        for task, number in enumerate(report.results.hosted[0].graph.resource)
        if report.results.hosted[0].graph.resources[number].device < 0
    )
    busy = report.summary["gpu_active_us"]
    assert max(busy, 1e6 * aside) < device < busy + 1e6 * aside


@pytest.mark.parametrize("servers", [1, 2, 8])
def test_asynchronous_servers_are_a_maximum(servers: int) -> None:
    """A step takes what it takes itself, or the servers, or the network."""
    alone = analyze(place("remote", servers=64), batch=6400)
    report = analyze(
        place("remote", servers=servers, trainers=32), batch=6400, pooling=64
    )
    spans = streams(report)
    itself = max(spans["compute"][1], spans["main"][1])
    away = {
        name: spans[name][1]
        for name in ("servers", "nic.send", "nic.receive", "requests")
    }

    assert report.time_us >= alone.time_us * 0.999
    assert 1e-6 * report.time_us == pytest.approx(max(itself, *away.values()), rel=0.02)


def test_waiting_for_servers_takes_longer() -> None:
    """With `sync` a step adds its request, and more of the network than otherwise."""
    times = [
        analyze(place("remote", servers=4, **more)).time_us
        for more in ({}, {"sync": True}, {"sync": True, "rpc_us": 5000.0})
    ]

    assert times[0] < times[1] < times[2]
    assert 4000 < times[2] - times[1] <= 4951


def test_trainers_and_servers_of_cpus() -> None:
    """T trainers on N servers do the least of what trainers, servers and NICs do."""
    trainer = analyze(
        place("remote", servers=64), target="2s-skylake", pooling=64
    ).summary["samples_per_s"]
    one, many = (
        count
        * analyze(
            place("remote", servers=1, trainers=count), target="2s-skylake", pooling=64
        ).summary["samples_per_s"]
        for count in (1, 400)
    )

    assert one <= trainer
    assert many < 400 * trainer
    doubled = 800 * analyze(
        place("remote", servers=2, trainers=800), target="2s-skylake", pooling=64
    ).summary["samples_per_s"]
    assert 2 * many == pytest.approx(doubled, rel=0.01)


def test_a_cpu_has_its_own_memory() -> None:
    """On a server without GPUs tables in DRAM, or with the cores, are at home."""
    times = {
        analyze(*passes, target="2s-skylake").time_us
        for passes in ((), (place("host"),), (place("dram"),), (place("hbm"),))
    }

    assert 1 == len(times)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_moves_more_than_inference(optimizer: str) -> None:
    """Rows are written back, and the states of the optimizer lie beside them."""

    def medium_us(mode: str) -> float:
        loaded = load(
            "dlrm-zion",
            batch=2048,
            mode=mode,
            **({"optimizer": optimizer} if mode == "training" else {}),
            transforms=(place("optane", cache=0.5, count=4),),
        )
        report = perfc.analyze(loaded, target=ZION)
        graph = report.results.hosted[0].graph
        shown = [n for n, r in enumerate(graph.resources) if r.name == "tier.optane"]
        return 1e6 * sum(
            report.results.schedule.durations_s[task]
            for task, number in enumerate(graph.resource)
            if number in shown
        )

    assert medium_us("training") > 1.9 * medium_us("inference")


def test_drives_and_caches_only_help() -> None:
    """More drives, or a larger cache, never take longer; nor does Optane than NAND."""
    drives = [analyze(place("optane", count=n)).time_us for n in (1, 2, 4, 8)]
    caches = [analyze(place("optane", cache=c)).time_us for c in (0.1, 0.3, 0.9, 1.0)]
    nand = analyze(place("nand")).time_us

    assert sorted(drives, reverse=True) == drives
    assert sorted(caches, reverse=True) == caches
    assert drives[0] < nand


def test_a_server_has_its_cores_at_work() -> None:
    """A server looks up as fast as the host of a GPU that has the same processors."""
    own = analyze(target="2s-skylake", batch=6400)
    other = analyze(place("host"), target=BIG_BASIN, batch=6400)
    graph = other.results.hosted[0].graph
    cores_us = 1e6 * sum(
        other.results.schedule.durations_s[task]
        for task, number in enumerate(graph.resource)
        if graph.resources[number].name == "cores"
    )

    (costs,) = own.results.costs
    kernels = own.results.hosted[0].graph.kernels
    looked_up_us = 1e6 * sum(
        seconds
        for kernel, seconds in zip(kernels, costs.seconds, strict=True)
        if kernel.op == "embedding_bag"
    )
    assert looked_up_us == pytest.approx(cores_us, rel=0.05)


def test_a_cpu_holds_what_its_host_holds() -> None:
    """Memory of a server has its tables, wherever in the host they are put."""
    needed = {
        analyze(*passes, target="2s-skylake", batch=64).summary["peak_memory_bytes"]
        for passes in ((), (place("host"),), (place("uvm"),), (place("dram"),))
    }

    assert 1 == len(needed)


def test_a_tier_of_the_sheet_is_found_by_its_name() -> None:
    """`--set` of a tier's field changes what its tables take."""
    slow, fast = (
        perfc.analyze(
            load("dlrm-zion", batch=512, transforms=(place("dram"),)),
            target=load_target(ZION, {"host.dram_gb_per_s": gb}),
        ).time_us
        for gb in ("5", "5000")
    )

    assert fast < slow


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


@pytest.mark.parametrize(
    ("passes", "target", "sizes", "says"),
    [
        ([place("attic")], ZION, {}, "unknown tier attic; zion has hbm, dram; memories"),
        ([place("host")], "v100", {}, "nothing is known of its host"),
        ([place("dram")], "v100", {}, "has no tier dram"),
        (
            [place("host")],
            BIG_BASIN,
            {"rows": 10**8},
            r"409\.6 GB of tables do not fit into 274\.9 GB; 134\.7 GB are missing",
        ),
        (
            [place("uvm")],
            BIG_BASIN,
            {"rows": 10**8},
            r"the host of big-basin: .* 134\.7 GB are missing",
        ),
        (
            [place("optane", count=2)],
            ZION,
            {"rows": 10**9},
            r"tier optane: 4096 GB .* into 750 GB; 3346 GB are missing; 2 nodes hold "
            r"them with such a tier, 2 nodes hold them with DRAM alone",
        ),
        (
            [place("remote", servers=2)],
            ZION,
            {"rows": 10**9},
            r"2 servers \(2s-skylake\): .*; servers=15 hold them",
        ),
        ([place("remote", server="v100")], ZION, {}, "nothing is known of its host"),
        ([place("remote", server="cpu")], ZION, {}, "nothing is known of its host"),
    ],
)
def test_what_cannot_be(
    passes: Sequence[Pass], target: str, sizes: dict[str, Any], says: str
) -> None:
    """Unknown tiers, hosts that nobody knows and too many bytes end in one line."""
    with pytest.raises(PerfcError, match=says) as refused:
        analyze(*passes, target=target, batch=64, **sizes)

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("runtime", ["cudagraph"])
def test_no_graph_holds_what_others_do(runtime: str) -> None:
    """A CUDA graph cannot wait for cores; a table that kernels read is no problem."""
    loaded = load("dlrm-zion", batch=64, transforms=(place("host"),))
    with pytest.raises(PerfcError, match="brought by others than the device"):
        perfc.analyze(loaded, target=ZION, runtime=runtime)

    near = load("dlrm-zion", batch=64, transforms=(place("uvm"),))
    assert perfc.analyze(near, target=ZION, runtime=runtime).time_us > 0


def test_it_says_what_is_assumed() -> None:
    """Diagnostics name servers, what a request takes, caches and what is shared."""
    transforms = (
        place("optane", table="emb_l.0"),
        place("host", table="emb_l.1"),
        place("remote", table="emb_l.2"),
    )
    report = analyze(*transforms, batch=64)
    said = {remark.code: remark.message for remark in report.diagnostics}

    assert "1 x 2s-skylake are parameter servers; a request takes 50 us" in said["remote"]
    assert "caches 20% of the rows" in said["tier"]
    assert "assumed of it: granularity_b" in said["tier"]
    assert "as the sheet of zion says" in said["shared-host"]


def test_shards_share_the_host() -> None:
    """Tables that are sharded over a node are read through what its ranks share."""
    times = []
    for target in (BIG_BASIN, ZION):
        loaded = load(
            "dlrm-zion",
            batch=2048,
            mode="training",
            transforms=(place("uvm"), ShardEmbeddings(NODE)),
        )
        times.append(perfc.analyze(loaded, target=target).time_us)

    assert times[1] < times[0]


@pytest.mark.parametrize("tier", ["host", "remote", "optane"])
def test_other_batches_are_those_of_a_new_load(tier: str) -> None:
    """A model that is bound again is that which is loaded at that size."""
    loaded = load("dlrm-zion", batch=64, mode="training", transforms=(place(tier),))
    perfc.analyze(loaded, target=ZION)
    again = perfc.analyze(loaded.bind(640), target=ZION)

    assert analyze(place(tier), batch=640).time_us == again.time_us


@pytest.mark.parametrize("tier", ["host", "remote", "optane"])
def test_an_oracle_answers_for_many_batches(tier: str) -> None:
    """What it says of several at once is what it says of each."""
    loaded = load("dlrm-zion", batch=64, mode="training", transforms=(place(tier),))
    oracle = perfc.Oracle(loaded, target=ZION)
    found = oracle.batch({"batch": [64, 640, 6400]})["time_us"]

    for batch, time_us in zip((64, 640, 6400), found, strict=True):
        expected = analyze(place(tier), batch=batch).time_us
        assert expected == pytest.approx(float(time_us), rel=1e-9)


def test_launches_are_read_back() -> None:
    """What others do has streams of its own, which perfc assembly tells apart."""
    from perfc.ir.text import parse_program, print_program

    report = analyze(place("remote"), batch=64)
    text = print_program(report.analysis.program)

    assert text == print_program(parse_program(text))
    with pytest.raises(UsageError, match="means nothing"):
        place("uvm", sync=True)
