"""What a Kineto trace says, in every way it was ever written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.traces.synthetic import Made

from perfc.tools.replay.replay import replay_alone
from perfc.traces.events import DeviceKind, TraceError
from perfc.traces.kineto import read_trace
from perfc.traces.owners import op_parents
from perfc.traces.recording import record

_OLD = {
    "cpu_op": "Operator",
    "cuda_runtime": "Runtime",
    "kernel": "Kernel",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
}


def _made() -> Made:
    made = Made()
    made.op("ProfilerStep#3", 1000, 60)
    made.op("aten::linear", 1010, 30)
    made.launch(1015, 5, 1025, 20)
    made.copy(1045, 8, 1055, 2, size=128)
    return made


def _codes(trace: Any) -> set[str]:
    return {found.code for found in trace.diagnostics}


def test_ops_calls_and_device_work(tmp_path: Path) -> None:
    """Times count from the first event; device, rank and shapes are kept."""
    path = _made().write(
        tmp_path / "t.json.gz", distributedInfo={"rank": 2, "world_size": 4}
    )

    trace = read_trace(path)

    (op,) = trace.ops
    assert ("aten::linear", 10, 40) == (op.name, op.start_us, op.end_us)
    assert ((2, 3),) == op.dims
    assert ["cudaLaunchKernel", "cudaMemcpyAsync"] == [c.name for c in trace.calls]
    assert [DeviceKind.KERNEL, DeviceKind.COPY] == [w.kind for w in trace.works]
    assert [0, 128] == [work.size_bytes for work in trace.works]
    assert ("Tesla V100-SXM2-16GB", 2, 4) == (
        trace.device,
        trace.rank,
        trace.world_size,
    )
    assert [("ProfilerStep#3", 3, 0, 60)] == [
        (s.name, s.number, s.start_us, s.end_us) for s in trace.steps
    ]
    assert not trace.diagnostics


def test_traces_of_2021_say_the_same(tmp_path: Path) -> None:
    """Old traces have other categories, and write thread and stream as text."""
    made = _made()
    new = read_trace(made.write(tmp_path / "new.json"))
    for event in made.events:
        event["cat"] = _OLD[event["cat"]]
        on_device = event["cat"] in ("Kernel", "Memcpy")
        event["tid"] = f"stream {event['tid']}" if on_device else str(event["tid"])
        event["args"].pop("stream", None)
        if dims := event["args"].pop("Input Dims", None):
            event["args"]["Input dims"] = dims

    old = read_trace(made.write(tmp_path / "old.json"))

    assert [w.stream for w in new.works] == [w.stream for w in old.works]
    assert [(o.name, o.start_us, o.dims) for o in new.ops] == [
        (o.name, o.start_us, o.dims) for o in old.ops
    ]
    assert [c.thread for c in new.calls] == [c.thread for c in old.calls]
    assert new.steps[0].thread == old.steps[0].thread


def test_clocks_that_disagree_are_aligned(tmp_path: Path) -> None:
    """Kernels that begin before their launches are moved, all by as much."""
    made = Made()
    for number in range(30):
        made.launch(100 * number, 5, 100 * number - 30 + number % 3, 10)

    trace = read_trace(made.write(tmp_path / "t.json"))

    assert {"trace-clock-skew"} < _codes(trace)
    delays = [
        w.start_us - c.start_us for w, c in zip(trace.works, trace.calls, strict=True)
    ]
    assert min(delays) == pytest.approx(6.5, abs=0.5)
    assert max(delays) - min(delays) == 2


def test_an_op_that_begins_where_another_ends_is_after_it(tmp_path: Path) -> None:
    """2365.601 + 24.26 is more than 2389.861 in binary, and is the same here."""
    made = Made()
    made.op("aten::matmul", 2365.601, 24.26)
    made.op("aten::sum", 2389.861, 36.775)
    made.op("aten::add", 2426.6364, 1.00001)

    first, second, finer = read_trace(made.write(tmp_path / "t.json")).ops

    assert first.end_us == second.start_us
    assert [None, None, None] == [*op_parents((first, second, finer)).values()]
    assert finer.end_us - finer.start_us == pytest.approx(1.00001, abs=1e-9)


def test_clocks_that_agree_are_left_alone(tmp_path: Path) -> None:
    """Nothing is moved where causes come before effects."""
    made = Made()
    for number in range(30):
        made.launch(100 * number, 5, 100 * number + 8, 10)

    trace = read_trace(made.write(tmp_path / "t.json"))

    assert "trace-clock-skew" not in _codes(trace)
    assert trace.works[0].start_us == 8


TOLD = "trace-steps-told"


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    """No device, no calls, no shapes, broken events: each is a remark of its own."""
    host = Made()
    host.add("cpu_op", "aten::add", 0, 5)
    host.add("cpu_op", "aten::mul", 10, -5)
    host.add("cpu_op", "aten::sub", "soon", 5)  # type: ignore[arg-type]
    device = Made()
    device.work(5, 0, 10)

    alone = read_trace(host.write(tmp_path / "host.json"))
    silent = read_trace(device.write(tmp_path / "device.json"))

    assert {"trace-no-device", "trace-no-shapes", "trace-events", TOLD} == _codes(alone)
    messages = [d.message for d in alone.diagnostics if d.code == "trace-events"]
    assert [
        "1 events of negative duration, taken as 0 us",
        "1 events without a time, left out",
    ] == messages
    assert [0, 0] == [
        op.end_us - op.start_us - 5 * (op.name == "aten::add") for op in alone.ops
    ]
    assert "trace-no-calls" in _codes(silent)


def test_traces_of_other_programs_are_refused(tmp_path: Path) -> None:
    """A trace without anything of PyTorch says what it has instead."""
    made = Made()
    made.add("blink", "paint", 0, 5)

    with pytest.raises(
        TraceError, match=r"no trace of PyTorch's profiler.*found 'blink'"
    ):
        read_trace(made.write(tmp_path / "t.json"))


@pytest.mark.parametrize(
    "odd",
    [
        {"pid": [1]},
        {"tid": {"a": 1}},
        {"tid": "\u00b2"},
        {"tid": None},
        {"ts": int("9" * 400)},
        {"dur": 1e308},
        {"ts": "nan"},
        {"name": "\ud800"},
        {"name": None},
        {"args": [1]},
        {"args": {"correlation": "9" * 5000, "stream": "9" * 5000, "bytes": {}}},
        {"args": {"Input Dims": {"a": 1}, "correlation": True}},
    ],
)
@pytest.mark.parametrize("category", ["cpu_op", "cuda_runtime", "kernel", "cuda_sync"])
def test_odd_events_do_no_harm(
    tmp_path: Path, odd: dict[str, object], category: str
) -> None:
    """An event with fields that no profiler writes is read, or left out and counted."""
    made = _made()
    made.add(category, "odd", 1050, 5, correlation=77)
    made.events[-1] |= odd

    (again,) = replay_alone([record(read_trace(made.write(tmp_path / "t.json")))])

    again.recorded.trace.file.encode()
    for op in again.recorded.graph.ops:
        op.name.encode()
    assert 0 < again.simulated_us < 1e9
