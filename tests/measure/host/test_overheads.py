"""Host times from traces of known times, and from real steps on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.measure.test_design import GPU

from perfc.ir import PerfcError
from perfc.measure.device import open_device
from perfc.measure.host import OverheadRun
from perfc.measure.host import floors as host_floors
from perfc.measure.host.floors import latencies
from perfc.measure.host.overheads import profiler_tax_us
from perfc.measure.host.times import host_events, host_times
from perfc.measure.profiled import Trace, trace_of  # not public
from perfc.measurements import MEASUREMENTS, read_rows
from perfc.tools.cli.command_line import main
from perfc.traces import covered

Span = tuple[str, str, float, float]
"""Name, category, start and end in microseconds."""

_NODE = "autograd::engine::evaluate_function: MulBackward0"
FORWARD: Sequence[Span] = (
    ("ProfilerStep#0", "user_annotation", 0, 100),
    ("aten::linear", "cpu_op", 10, 30),
    ("aten::addmm", "cpu_op", 12, 28),
    ("cudaLaunchKernel", "cuda_runtime", 15, 18),
    ("cudaLaunchKernel", "cuda_runtime", 20, 24),
    ("aten::view", "cpu_op", 33, 36),
    ("aten::relu", "cpu_op", 40, 50),
    ("cudaLaunchKernel", "cuda_runtime", 44, 47),
    ("aten::add_", "cpu_op", 90, 97),
    ("cudaLaunchKernel", "cuda_runtime", 92, 94),
    ("aten::relu", "cpu_op", 120, 130),
)
BACKWARD: Sequence[Span] = (
    (_NODE, "cpu_op", 60, 80),
    ("MulBackward0", "cpu_op", 61, 79),
    ("aten::mul", "cpu_op", 63, 70),
    ("cudaLaunchKernel", "cuda_runtime", 65, 68),
    ("aten::item", "cpu_op", 73, 78),
    ("cudaStreamSynchronize", "cuda_runtime", 74, 77),
)


def _events(spans: Sequence[Span], thread: int) -> list[Mapping[str, Any]]:
    return [
        {
            "ph": "X",
            "pid": 1,
            "tid": thread,
            "name": name,
            "cat": category,
            "ts": start,
            "dur": end - start,
            "args": {},
        }
        for name, category, start, end in spans
    ]


def _trace(*threads: Sequence[Span]) -> Trace:
    events = [e for number, spans in enumerate(threads) for e in _events(spans, number)]
    return Trace("", events, [100.0])


def test_times_of_ops_on_a_gpu() -> None:
    """T1 to T5 and T0 by the definitions; a wait is none, an autograd node no op."""
    found = host_times(_trace(FORWARD, BACKWARD), 0.0, cuda=True)

    assert {
        ("T1", ""): [3.0, 4.0, 3.0],
        ("T2", "aten::linear"): [5.0],
        ("T3", "aten::linear"): [6.0],
        ("T5", "aten::linear"): [2.0],
        ("T4", "cudaLaunchKernel"): [3.0, 4.0, 3.0, 2.0, 3.0],
        ("T0", "aten::view"): [3.0],
        ("T2", "aten::relu"): [4.0],
        ("T3", "aten::relu"): [3.0],
        ("T2", "aten::add_"): [2.0],
        ("T3", "aten::add_"): [3.0],
        ("T2", "aten::mul"): [2.0],
        ("T3", "aten::mul"): [2.0],
        ("T0", "aten::relu"): [10.0],
        ("autograd", ""): [13.0],
        ("autograd", "end"): [12.0],
    } == dict(found)


def test_a_cpu_has_times_between_ops_and_of_views() -> None:
    """What is inside of an op that computes belongs to its kernel."""
    found = host_times(_trace(FORWARD, BACKWARD), 0.0, cuda=False)

    assert {"T0", "T1", "autograd"} == {type_ for type_, _ in found}
    assert {"aten::view"} == {op for type_, op in found if type_ == "T0"}


def test_the_tax_is_taken_out() -> None:
    """Half of an event at each of its edges, of the edges of a span a half of that."""
    tax = 0.4
    plain, less = (
        host_times(_trace(FORWARD, BACKWARD), us, cuda=True) for us in (0.0, tax)
    )
    view, linear = ("T0", "aten::view"), ("T2", "aten::linear")

    assert pytest.approx(plain[view][0] - tax / 2) == less[view][0]
    # The start of aten::addmm lies between.
    assert pytest.approx(plain[linear][0] - tax) == less[linear][0]
    assert all(us >= 0 for samples in less.values() for us in samples)


def test_the_tax_adds_up() -> None:
    """What is taken out of all spans between edges is the tax of all events."""
    spans = (
        ("ProfilerStep#0", "user_annotation", 0, 50),
        ("aten::t", "cpu_op", 0, 10),
        ("aten::t", "cpu_op", 12, 20),
        ("aten::t", "cpu_op", 22, 50),
    )
    found = host_times(_trace(spans), 1.0, cuda=True)
    total = sum(sum(samples) for samples in found.values())

    # Of three ops, but for a quarter at each end, outside of which nothing is measured.
    assert pytest.approx(50 - 3 + 2 * 0.25) == total


def test_host_events_are_counted() -> None:
    """Kernels are no events of the host."""
    kernel = {"ph": "X", "cat": "kernel", "ts": 0, "dur": 1}
    trace = _trace(FORWARD)
    both = Trace("", [*trace.events, kernel], [1.0])

    assert len(FORWARD) == host_events(both)


def test_launch_latency_joins_call_and_kernel() -> None:
    """By the correlation id; a kernel without its call is left out."""
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "cuda_runtime", "ts": 10.0, "args": {"correlation": 1}},
        {"ph": "X", "cat": "kernel", "ts": 16.5, "args": {"correlation": 1}},
        {"ph": "X", "cat": "kernel", "ts": 99.0, "args": {"correlation": 2}},
        {"ph": "M", "name": "process_name", "args": {}},
    ]

    assert [6.5] == latencies(Trace("", events, [1.0]))


def test_busy_time_is_a_union() -> None:
    """Kernels of two streams at the same time count once."""
    kernels = [("a", "kernel", 0.0, 10.0), ("b", "kernel", 5.0, 12.0)]
    copies = [("c", "gpu_memcpy", 20.0, 21.0), ("d", "kernel", 6.0, 7.0)]
    trace = _trace([*kernels, *copies, ("aten::mm", "cpu_op", 0.0, 100.0)])

    assert 13.0 == trace.active_us()
    assert 0.0 == covered([])


@pytest.fixture
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("_one_thread")
def test_rows_of_a_cpu(tmp_path: Path) -> None:
    """A real step gives T1, views and the hand-over; a second run adds nothing."""
    path, said = tmp_path / "host.parquet", list[str]()
    models = (("dlrm-ddp:tables=2,rows=50,dim=8", 4, "sgd"),)
    for _ in range(2):
        run = OverheadRun(open_device("cpu"), path, models=models, iterations=3)
        run.measure(said.append)
    rows = read_rows(path, MEASUREMENTS)
    by_key = {(row.params["type"], row.params["op"]): row for row in rows}

    assert len(rows) == len(by_key)
    assert {("cpu", "host_overhead", "host")} == {
        (row.target, row.op, row.timing) for row in rows
    }
    assert {("T1", ""), ("T0", "aten::t"), ("autograd", "")} <= by_key.keys()
    assert 3 == by_key["autograd", ""].n
    assert all(row.latency_us >= 0 for row in rows)
    assert 1 == sum("recording an event" in line for line in said)


@pytest.mark.usefixtures("_one_thread")
def test_models_of_an_interrupted_run_are_not_run_again(tmp_path: Path) -> None:
    """What was profiled before an interruption counts; the file of it then goes."""
    path, said = tmp_path / "host.csv", list[str]()
    models = [(f"dlrm-ddp:tables=2,rows={rows},dim=8", 4, "sgd") for rows in (40, 50)]

    def interrupted(line: str) -> None:
        if "rows=50" in line:
            raise KeyboardInterrupt

    run = OverheadRun(open_device("cpu"), path, models=models, iterations=3)
    with pytest.raises(KeyboardInterrupt):
        run.measure(interrupted)
    kept = tmp_path / "host.csv.part.json"
    assert kept.exists()
    run = OverheadRun(open_device("cpu"), path, models=models, iterations=3)
    run.measure(said.append)
    hand_overs = [row for row in run.rows if row.params["type"] == "autograd"]

    assert ["rows=50" in line for line in said if "rows=" in line] == [True]
    assert {6} == {row.n for row in hand_overs}
    assert not kept.exists()

    kept.write_text("torn")
    again = tmp_path / "again.csv"
    kept.rename(tmp_path / "again.csv.part.json")
    with pytest.raises(PerfcError, match=r"cannot read .*; remove it, then measure"):
        OverheadRun(open_device("cpu"), again, models=models).measure(said.append)


def test_the_profiler_takes_time() -> None:
    """Its tax is positive, and no millisecond."""
    assert 0 <= profiler_tax_us(open_device("cpu")) < 1000


def test_a_table_of_another_machine(tmp_path: Path) -> None:
    """Rows of two machines are never mixed."""
    path = tmp_path / "host.csv"
    path.write_text(
        "target,op,dtype,params,latency_us,timing,source\n"
        't4,host_overhead,fp32,"{""type"": ""T1"", ""op"": """"}",1.0,host,elsewhere\n'
    )
    with pytest.raises(PerfcError, match="has rows of t4"):
        OverheadRun(open_device("cpu"), path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what is without CUDA")
def test_without_cuda(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One line, exit code 1."""
    command = ["measure", "overheads", "--device", "cuda"]

    assert 1 == main([*command, "-o", str(tmp_path / "host.csv")])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("perfc: error: --device cuda: PyTorch")


def test_a_profiler_starts_up_before_its_window() -> None:
    """Two more iterations run than are recorded."""
    runs: list[int] = []

    def iteration() -> None:
        with torch.profiler.record_function("one"):
            runs.append(0)

    trace = trace_of(iteration, open_device("cpu"), 3)

    recorded = [event for event in trace.events if event.get("name") == "one"]
    assert (5, 3, 3) == (len(runs), len(recorded), len(trace.walls_us))


def test_floors_are_measured_before_the_profiler_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It leaves calls of the runtime slower, which floors would then be of."""
    order: list[str] = []

    def noted(name: str) -> Callable[..., object]:
        def measure(*_: object, **__: object) -> list[object]:
            order.append(name)
            return []

        return measure

    for name in ("_waits", "_copy", "_graph", "_launch_latencies"):
        monkeypatch.setattr(host_floors, name, noted(name))

    assert 8 == len(host_floors.floors(GPU))
    assert ["_launch_latencies"] == order[-1:]
    assert 1 == order.count("_launch_latencies")
