"""Tables that others bring, or look up: what runs beside the device, and waits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from tests.passes.embeddings.placements import (
    BIG_BASIN,
    NODE,
    ZION,
    analyze,
    place,
)

import perfc
from perfc.costmodels import load_target
from perfc.ir import PerfcError, UsageError
from perfc.ir.text import parse_program, print_program
from perfc.passes import Pass, ShardEmbeddings
from perfc.tools import Report, load


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
    doubled = (
        800
        * analyze(
            place("remote", servers=2, trainers=800), target="2s-skylake", pooling=64
        ).summary["samples_per_s"]
    )
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
            optimizer=optimizer if mode == "training" else None,
            transforms=(place("optane", cache=0.5, count=4),),
        )
        report = perfc.analyze(loaded, target=ZION)
        graph = report.results.hosted[0].graph
        shown = [n for n, r in enumerate(graph.resources) if r.name == "tier.optane"]
        return 1e6 * math.fsum(
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


@pytest.mark.parametrize(
    ("passes", "target", "sizes", "says"),
    [
        (
            [place("attic")],
            ZION,
            {},
            "unknown tier attic; zion has hbm, dram; memories",
        ),
        ([place("host")], "v100", {}, "nothing is known of its host"),
        ([place("dram")], "v100", {}, "has no tier dram"),
        (
            [place("host")],
            BIG_BASIN,
            {"rows": 10**8},
            r"381 GiB of tables do not fit into 256 GiB; 125 GiB are missing",
        ),
        (
            [place("uvm")],
            BIG_BASIN,
            {"rows": 10**8},
            r"the host of big-basin: .* 125 GiB are missing",
        ),
        (
            [place("optane", count=2)],
            ZION,
            {"rows": 10**9},
            r"tier optane: 3\.73 TiB .* 3\.04 TiB are missing; 2 nodes hold them with",
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

    assert (
        "1 x 2s-skylake are parameter servers; a request takes 50 us" in said["remote"]
    )
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
    report = analyze(place("remote"), batch=64)
    text = print_program(report.analysis.program)

    assert text == print_program(parse_program(text))
    with pytest.raises(UsageError, match="means nothing"):
        place("uvm", sync=True)
