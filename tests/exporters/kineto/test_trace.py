"""Traces: the rules of the format, Kineto's words, and the report's numbers."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.exporters.predictions import (
    ONNX_FILE,
    replayed,
    replicas,
    report_of,
    two_ranks,
)

import perfc
from perfc.exporters.kineto.events import microseconds
from perfc.ir import PerfcError
from perfc.tools import Report

Json: TypeAlias = Any

REQUIRED = {
    "X": {"name", "cat", "ts", "dur", "pid", "tid", "args"},
    "M": {"name", "ts", "pid", "tid", "args"},
    "s": {"name", "cat", "id", "ts", "pid", "tid"},
    "f": {"name", "cat", "id", "ts", "pid", "tid", "bp"},
    "C": {"name", "ts", "pid", "tid", "args"},
}
"""Phases of the Trace Event Format, and the keys of each."""

DEVICE = ("kernel", "gpu_memcpy")
CATEGORIES = {"user_annotation", "cpu_op", "cuda_runtime", "cuda_sync", *DEVICE}
ROUNDING_US = 1e-3


CASES: dict[str, Callable[[], Report]] = {
    "host-bound": lambda: report_of("dlrm-ddp", "v100"),
    "onnx": lambda: report_of(str(ONNX_FILE)),
    "blocking-copies": lambda: report_of("dlrm-default", "t4", "host-pageable"),
    "device-inputs": lambda: report_of("dlrm-default", "h100", "device"),
    "cuda-graph": replayed,
    "two-ranks": two_ranks,
    "replicas": replicas,
}


@pytest.fixture(params=CASES)
def report(request: pytest.FixtureRequest) -> Report:
    """A prediction."""
    return CASES[request.param]()


@pytest.fixture
def trace(report: Report) -> Json:
    """Its trace, as read back."""
    return json.loads(report.to_trace(), parse_constant=pytest.fail)


@given(times_ns=st.lists(st.integers(0, 10**15)))
def test_times_are_exact(times_ns: list[int]) -> None:
    """Times are written in microseconds, to the nanosecond and without more zeros."""
    expected = [f"{ns // 1000}.{ns % 1000:03}" for ns in times_ns]

    assert expected == microseconds(np.array(times_ns, dtype=np.int64))


def _events(trace: Json, *categories: str, phase: str = "X") -> list[Json]:
    return [
        event
        for event in trace["traceEvents"]
        if event["ph"] == phase and event.get("cat") in categories
    ]


def _place(event: Json) -> tuple[int, int, float]:
    return event["pid"], event["tid"], event["ts"]


def _end_of_arrow(event: Json) -> tuple[int, int, int, float]:
    return event["id"], *_place(event)


def _end_us(event: Json) -> float:
    end_us: float = round(event["ts"] + event["dur"], 3)
    return end_us


def test_every_event_is_whole(trace: Json) -> None:
    """Each event has the keys of its phase and no others; times are not negative."""
    for event in trace["traceEvents"]:
        assert REQUIRED[event["ph"]] == event.keys() - {"ph"}
        assert event["ts"] >= 0
        assert event.get("dur", 0) >= 0
    found = {event["cat"] for event in trace["traceEvents"] if "cat" in event}
    assert found <= CATEGORIES | {"ac2g", "critical_path"}


def test_slices_nest(trace: Json) -> None:
    """Two slices of one thread or stream lie within, or beside, one another."""
    lanes: defaultdict[tuple[int, int], list[Json]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            lanes[event["pid"], event["tid"]].append(event)
    for slices in lanes.values():
        open_us: list[float] = []
        for event in sorted(slices, key=lambda e: (e["ts"], -e["dur"])):
            while open_us and open_us[-1] <= event["ts"]:
                open_us.pop()
            assert not open_us or _end_us(event) <= open_us[-1]
            open_us.append(_end_us(event))


def test_streams_run_one_thing_at_a_time(trace: Json) -> None:
    """On a stream nothing overlaps, as on a GPU."""
    lanes: defaultdict[tuple[int, int], list[Json]] = defaultdict(list)
    for event in _events(trace, *DEVICE):
        lanes[event["pid"], event["tid"]].append(event)
    for slices in lanes.values():
        slices.sort(key=lambda event: event["ts"])
        assert all(_end_us(a) <= b["ts"] for a, b in pairwise(slices))


def test_launches_and_kernels_correlate(trace: Json) -> None:
    """Each device slice has a call before it, with its correlation and an arrow.

    A graph launch issues many kernels: one arrow starts, and ends at each of them.
    """
    calls = {e["args"]["correlation"]: e for e in _events(trace, "cuda_runtime")}
    started = {e["id"]: e for e in _events(trace, "ac2g", phase="s")}
    ended = Counter(map(_end_of_arrow, _events(trace, "ac2g", phase="f")))
    device = _events(trace, *DEVICE)

    assert len(calls) == len(_events(trace, "cuda_runtime"))
    assert {e["args"]["correlation"] for e in device} == started.keys()
    assert len(started) == len(_events(trace, "ac2g", phase="s"))
    for event in device:
        number = event["args"]["correlation"]
        call, start = calls[number], started[number]
        assert _end_us(call) <= event["ts"]
        assert _place(call) == _place(start)
    assert Counter((e["args"]["correlation"], *_place(e)) for e in device) == ended


def test_kernels_belong_to_ops(trace: Json) -> None:
    """`External id` leads from calls and device slices to the op around the call."""
    ops = {e["args"]["External id"]: e for e in _events(trace, "cpu_op")}
    assert len(ops) == len(_events(trace, "cpu_op"))
    for event in _events(trace, "cuda_runtime"):
        if "External id" in event["args"]:
            op = ops[event["args"]["External id"]]
            assert op["ts"] <= event["ts"]
            assert _end_us(event) <= _end_us(op)
    by_call = {
        e["args"]["correlation"]: e["args"].get("External id")
        for e in _events(trace, "cuda_runtime")
    }
    for event in _events(trace, *DEVICE):
        call = by_call[event["args"]["correlation"]]
        assert call == event["args"].get("External id")


def test_device_slices_say_where(trace: Json) -> None:
    """Kineto's `device`, `context` and `stream` agree with process and thread."""
    devices = {device["id"] for device in trace["deviceProperties"]}
    for event in _events(trace, *DEVICE):
        args = event["args"]
        assert (event["pid"], event["tid"]) == (args["device"], args["stream"])
        assert args["device"] in devices
        assert args["context"] == 1


def test_device_time_is_the_report_s(trace: Json, report: Report) -> None:
    """The slices of the first GPU last as long as the report says it is busy."""
    spans = sorted(
        (e["ts"], _end_us(e)) for e in _events(trace, *DEVICE) if e["pid"] == 0
    )
    busy_us = reached_us = 0.0
    for start_us, end_us in spans:
        busy_us += max(0.0, end_us - max(start_us, reached_us))
        reached_us = max(reached_us, end_us)

    tolerance_us = ROUNDING_US * len(spans)
    assert report.summary["gpu_active_us"] == pytest.approx(busy_us, abs=tolerance_us)


def test_the_step_is_the_iteration(trace: Json, report: Report) -> None:
    """`ProfilerStep#0` of each rank lasts from 0 to the predicted time."""
    steps = _events(trace, "user_annotation")

    assert len(report.results.program.classes) == len(steps)
    for step in steps:
        assert ("ProfilerStep#0", 0) == (step["name"], step["ts"])
        assert report.time_us == pytest.approx(step["dur"], abs=ROUNDING_US)
    last_us = max(_end_us(e) for e in _events(trace, *CATEGORIES))
    assert report.time_us == pytest.approx(last_us, abs=ROUNDING_US)


def test_critical_path_arrows(trace: Json) -> None:
    """Each arrow goes forward in time, and the next starts where it has ended."""
    starts = {e["id"]: e for e in _events(trace, "critical_path", phase="s")}
    ends = {e["id"]: e for e in _events(trace, "critical_path", phase="f")}

    assert list(range(1, len(starts) + 1)) == list(starts) == list(ends)
    for number, start in starts.items():
        assert start["ts"] <= ends[number]["ts"]
    for number in list(starts)[1:]:
        before, after = ends[number - 1], starts[number]
        assert (before["pid"], before["tid"]) == (after["pid"], after["tid"])


def test_critical_slices(trace: Json, report: Report) -> None:
    """Device slices are marked critical as often as the path has them."""
    on_path = sum(
        1
        for task in report.results.path.tasks
        if report.results.hosted[report.results.place(task)[0]]
        .graph.kind[report.results.place(task)[1]]
        .value
        in ("kernel", "copy", "collective")
    )

    assert on_path == sum(e["args"]["critical"] for e in _events(trace, *DEVICE))


def test_lanes_are_named(trace: Json) -> None:
    """Every thread and stream that has slices has a name and a place."""
    drawn = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["ph"] == "X"}
    for what in ("thread_name", "thread_sort_index"):
        named = [
            (e["pid"], e["tid"]) for e in trace["traceEvents"] if e["name"] == what
        ]
        assert drawn <= set(named)
        assert len(set(named)) == len(named)


def test_inputs_of_an_op() -> None:
    """`Input Dims` and `Input type` are those of PyTorch's op."""
    trace = json.loads(report_of(str(ONNX_FILE)).to_trace())
    linear, *_ = (e for e in _events(trace, "cpu_op") if e["name"] == "aten::linear")
    to, *_ = (e for e in _events(trace, "cpu_op") if e["name"] == "aten::to")

    assert [[2048, 13], [512, 13], [512]] == linear["args"]["Input Dims"]
    assert ["float"] * 3 == linear["args"]["Input type"]
    assert "bottom.0" == linear["args"]["Module Hierarchy"]
    assert [[2048, 13]] == to["args"]["Input Dims"]


def test_names_of_device_slices() -> None:
    """Kernels are called by op and kind; copies and collectives as Kineto does."""
    kernels = Counter(
        event["name"]
        for made in (report_of(str(ONNX_FILE)), two_ranks())
        for event in _events(json.loads(made.to_trace()), *DEVICE)
    )

    assert {
        "aten::linear gemm fp32",
        "aten::embedding_bag embedding_bag fp32",
        "Memcpy HtoD (Pinned -> Device)",
        "ncclDevKernel_AllReduce",
    } <= kernels.keys()


def test_pageable_copies() -> None:
    """A copy from pageable memory says so, and the host waits in a runtime call."""
    trace = json.loads(report_of("dlrm-default", "t4", "host-pageable").to_trace())
    copies = {event["name"] for event in _events(trace, "gpu_memcpy")}
    calls = {event["name"] for event in _events(trace, "cuda_runtime")}

    assert {"Memcpy HtoD (Pageable -> Device)"} == copies
    assert "cudaStreamSynchronize" in calls


def test_a_synchronisation_starts_when_it_is_called() -> None:
    """The wait for the device is part of the call, as a profiler records it."""
    trace = json.loads(report_of("dlrm-default", "t4", "device").to_trace())
    (sync,) = (
        event
        for event in _events(trace, "cuda_runtime")
        if event["name"] == "cudaDeviceSynchronize"
    )
    last_us = max(_end_us(event) for event in _events(trace, *DEVICE))

    assert sync["ts"] < last_us < _end_us(sync)


def test_streams_wait_for_events() -> None:
    """A `Stream Wait Event` names both calls and both streams, as Kineto does.

    Collectives wait for what is computed, and the optimizer for collectives.
    """
    trace = json.loads(replicas().to_trace())
    calls = {e["args"]["correlation"]: e for e in _events(trace, "cuda_runtime")}
    waits = _events(trace, "cuda_sync")
    compute, network = 7, 8

    assert Counter(e["name"] for e in calls.values())["cudaStreamWaitEvent"] == len(
        waits
    )
    for wait in waits:
        args = wait["args"]
        call = calls[args["correlation"]]
        record = calls[args["wait_on_cuda_event_record_corr_id"]]
        assert ("cudaStreamWaitEvent", "cudaEventRecord") == (
            call["name"],
            record["name"],
        )
        assert _end_us(record) <= call["ts"] <= _end_us(call) <= wait["ts"]
        assert wait["tid"] == args["stream"]
        assert args["cuda_sync_kind"] == wait["name"] == "Stream Wait Event"
    assert {(network, compute), (compute, network)} == {
        (wait["args"]["stream"], wait["args"]["wait_on_stream"]) for wait in waits
    }


def test_collectives_have_one_name_on_all_ranks() -> None:
    """Group and number say which kernels of several ranks are one collective."""
    kernels = _events(json.loads(two_ranks().to_trace()), "kernel")
    named = [e["args"] for e in kernels if e["name"].startswith("nccl")]

    assert [("g", 0)] * 2 == [(a["Process Group Name"], a["Seq"]) for a in named]
    assert {0, 1} == {args["device"] for args in named}


def test_memory_counter() -> None:
    """The counter reaches the report's peak."""
    report = report_of("dlrm-ddp", "v100")
    counters = [
        e for e in json.loads(report.to_trace())["traceEvents"] if e["ph"] == "C"
    ]

    assert report.memory["peak_bytes"] == max(
        sum(event["args"].values()) for event in counters
    )
    times_us = [event["ts"] for event in counters]
    assert sorted(times_us) == times_us


def test_header() -> None:
    """The header has Kineto's keys, and the prediction's own."""
    report = report_of("dlrm-ddp", "a100")
    trace = json.loads(report.to_trace())
    (device,) = trace["deviceProperties"]

    assert 1 == trace["schemaVersion"]
    assert (108, 8, 0) == tuple(
        device[key] for key in ("numSms", "computeMajor", "computeMinor")
    )
    assert {"backend": "nccl", "rank": 0, "world_size": 1} == trace["distributedInfo"]
    assert report.time_us == trace["perfc"]["summary"]["time_us"]


def test_compressed(tmp_path: Path) -> None:
    """A file called `.gz` holds the same text, and the same bytes every time."""
    report = report_of("dlrm-ddp", "v100")
    plain, first, second = (tmp_path / name for name in ("t.json", "a.gz", "b.gz"))

    texts = {report.to_trace(path) for path in (plain, first, second)}

    assert {plain.read_text(encoding="utf-8")} == texts
    assert plain.read_bytes() == gzip.decompress(first.read_bytes())
    assert first.read_bytes() == second.read_bytes()


def _ranks(folder: Path) -> dict[int, Any]:
    """Return the traces of a folder, by their ranks."""
    traces = [
        json.loads(gzip.decompress(path.read_bytes())) for path in folder.iterdir()
    ]
    return {trace["distributedInfo"]["rank"]: trace for trace in traces}


def test_a_file_for_each_rank(tmp_path: Path) -> None:
    """A folder gets what each rank would have recorded; together they are the trace."""
    report = two_ranks()
    whole = json.loads(report.to_trace(tmp_path))
    traces = _ranks(tmp_path)

    assert {"rank0.json.gz", "rank3.json.gz"} == {p.name for p in tmp_path.iterdir()}
    assert {0, 3} == traces.keys()
    apart = [event for trace in traces.values() for event in trace["traceEvents"]]
    kinds = ("cpu_op", "cuda_runtime", "kernel", "ac2g", "user_annotation")
    for kind in kinds:
        assert _sorted(_of(whole["traceEvents"], kind)) == _sorted(_of(apart, kind))
    assert 2 == whole["distributedInfo"]["world_size"]
    assert {2} == {t["distributedInfo"]["world_size"] for t in traces.values()}


def test_arrows_of_one_rank_stay_there(tmp_path: Path) -> None:
    """Of the critical path, a rank's file has what does not leave the rank."""
    report = two_ranks()
    whole = _of(json.loads(report.to_trace(tmp_path))["traceEvents"], "critical_path")
    traces = _ranks(tmp_path)

    apart = 0
    for trace in traces.values():
        events = trace["traceEvents"]
        slices = {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}
        arrows = _of(events, "critical_path")
        assert {(e["pid"], e["tid"]) for e in arrows} <= slices
        ids = Counter(e["id"] for e in arrows)
        assert all(count == 2 for count in ids.values())
        apart += len(arrows)
    assert 0 < apart <= len(whole)


def test_ranks_that_are_alike(tmp_path: Path) -> None:
    """Eight replicas are eight files that differ by the rank alone."""
    replicas().to_trace(tmp_path)
    traces = _ranks(tmp_path)

    assert set(range(8)) == traces.keys()
    first = traces[0]["traceEvents"]
    assert all(first == trace["traceEvents"] for trace in traces.values())


def test_too_many_ranks(tmp_path: Path) -> None:
    """A folder takes a thousand ranks; the line says what else there is."""
    model = perfc.load("dlrm-ddp", batch=2048, ranks=2048)
    report = perfc.analyze(model, "dgx-v100")

    with pytest.raises(PerfcError, match=r"2,048 ranks .* 1,024; name a file"):
        report.to_trace(tmp_path)
    assert [] == list(tmp_path.iterdir())


def _of(events: list[Any], category: str) -> list[Any]:
    return [event for event in events if event.get("cat") == category]


def _sorted(events: list[Any]) -> list[str]:
    return sorted(json.dumps(event, sort_keys=True) for event in events)
