"""`perfc diff` of a prediction and a trace of it, as it is typed."""

from __future__ import annotations

import gzip
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from tests.tools.command import Command

import perfc
from perfc.ir import PerfcError, UsageError

DATA = Path(os.environ.get("PERFC_DATA", Path(__file__).parents[4] / "shared" / "data"))
RESNET = [
    "resnet50_v100dgxs_tb_nw0_9861",
    "resnet50_v100dgxs_tb_nw4_6351",
    "resnet50ddp_a100_hta_nccl",
    "resnet50_v100_hta_ns",
]
"""Public traces of ResNet-50's training, the last two without shapes."""

BY = ("op", "module", "phase", "kernel", "overhead")
TABLES = "dlrm-ddp:tables=2,rows=1000"
_NANOSECOND_US = 1e-3
"""To which times of a trace are rounded."""


def _report(model: str = TABLES, target: str = "v100", **options: Any) -> perfc.Report:
    options.setdefault("batch", 64)
    return perfc.analyze(model, target, **options)


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "training"},
        {"mode": "training", "optimizer": "adagrad", "target": "mi300x"},
        {"runtime": "cudagraph"},
        {"runtime": "compiled", "target": "a100"},
        {"model": "resnet50", "batch": 8},
        {"model": "bert-base:layers=1", "batch": 2, "runtime": "cudagraph"},
    ],
    ids=str,
)
def test_a_trace_of_a_prediction_does_not_differ_from_it(
    options: dict[str, Any], by: str, tmp_path: Path
) -> None:
    """What is left is that a trace's times are whole nanoseconds."""
    report = _report(**options)
    report.to_trace(tmp_path / "trace.json.gz")
    found = perfc.diff(report, tmp_path / "trace.json.gz", by)
    count = len(report.critical_path)

    assert [] == [(pair.one.op, pair.why) for pair in found.pairs if pair.why]
    assert abs(found.difference_us) <= _NANOSECOND_US
    assert max(abs(s.delta_us) for s in found.steps) <= count * _NANOSECOND_US
    assert found.probability_slower == pytest.approx(0.5, abs=1e-3)
    assert all(
        abs(r["delta_us"]) <= 20 * _NANOSECOND_US for r in found.to_dict()["kernels"]
    )


Event = dict[str, Any]
STRETCHED_US = 100.0


def _events(report: perfc.Report, folder: Path) -> list[Event]:
    """Return the events of a prediction as a profiler would have written them."""
    report.to_trace(folder / "own.json")
    document = json.loads((folder / "own.json").read_text("utf-8"))
    events: list[Event] = document["traceEvents"]
    for event in events:
        args = event.setdefault("args", {})
        for key in ("perfc kernel", "perfc node", "critical", "cost model"):
            args.pop(key, None)
        if "Module Hierarchy" in args:
            args["Module Hierarchy"] = ""
        if event["name"] == "aten::relu":
            event["name"] = "aten::relu_"
    return events


def _written(events: list[Event], path: Path) -> str:
    text = json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return str(path)


def _later(events: list[Event], after_us: float, by_us: float) -> None:
    """Let everything that begins later be later, and what runs then last longer."""
    for event in events:
        if event["ts"] >= after_us:
            event["ts"] += by_us
        elif event["ts"] + event.get("dur", 0.0) > after_us:
            event["dur"] += by_us


@pytest.fixture
def report() -> perfc.Report:
    """Return a prediction whose host decides its time."""
    return _report()


@pytest.fixture
def predicted(report: perfc.Report, tmp_path: Path) -> str:
    """Return its file."""
    report.to_json(tmp_path / "report.json")
    return str(tmp_path / "report.json")


def _steps(document: Any) -> dict[str, float]:
    return {step["name"]: step["delta_us"] for step in document["steps"]}


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_what_took_longer_is_named(
    suffix: str, predicted: str, report: perfc.Report, tmp_path: Path, command: Command
) -> None:
    """A host that is late in one op is that op's step, and an overhead's."""
    events = _events(report, tmp_path)
    op = next(e for e in events if e["name"] == "aten::cat")
    _later(events, op["ts"] + op["dur"] / 8, STRETCHED_US)
    trace = _written(events, tmp_path / f"trace{suffix}")
    found = command("diff", predicted, trace, "--format", "json").report
    steps = _steps(found)

    assert found["difference_us"] == pytest.approx(STRETCHED_US, abs=0.01)
    assert math.fsum(steps.values()) == pytest.approx(found["difference_us"], rel=1e-9)
    assert steps["aten::cat"] == pytest.approx(STRETCHED_US, abs=0.01)
    assert ("host", "ProfilerStep#0") == (
        found["steps"][0]["reason"],
        found["head"]["step"],
    )
    assert 0.5 < found["probability_slower"] < 1
    by = command("diff", predicted, trace, "--by", "overhead", "--format", "json")
    assert _steps(by.report)["T2"] == pytest.approx(STRETCHED_US, abs=0.01)


def test_a_slower_kernel_is_named(tmp_path: Path, command: Command) -> None:
    """Its class is the step, and it is the first of the kernels, with its own name."""
    report = _report("resnet50", batch=8)
    report.to_json(tmp_path / "report.json")
    events = _events(report, tmp_path)
    kernels = [e for e in events if e.get("cat") == "kernel" and "conv2d" in e["name"]]
    slow = kernels[len(kernels) // 2]
    slow["name"] = "void cudnn::winograd_nonfused<float>(int)"
    _later(events, slow["ts"] + slow["dur"] / 2, STRETCHED_US)
    trace = _written(events, tmp_path / "trace.json")
    words = ("diff", str(tmp_path / "report.json"), trace)
    found = command(*words, "--by", "kernel", "--format", "json").report
    first = found["kernels"][0]

    assert _steps(found)["conv2d"] == pytest.approx(STRETCHED_US, abs=0.1)
    assert first["delta_us"] == pytest.approx(STRETCHED_US, abs=0.01)
    assert "conv2d fp32 fp32" in first["base_kernels"]
    assert slow["name"] in first["head_kernels"]
    assert "+100 us" in command(*words).out
    assert "aten::conv2d" in command(*words, "--format", "md").out


def test_what_one_side_alone_has(
    predicted: str, report: perfc.Report, tmp_path: Path, command: Command
) -> None:
    """An op that is measured only is added; turned round, it is removed."""
    events = _events(report, tmp_path)
    gone = next(e for e in events if e["name"] == "aten::embedding_bag")
    sizes = {"Input Dims": [[3, 5]], "Input type": ["float"]}
    for event in events:
        if event.get("args", {}).get("External id") == gone["args"]["External id"]:
            event["name"] = event["name"].replace("aten::embedding_bag", "my::op")
            event["name"] = event["name"].replace("embedding_bag", "mystery")
    gone["args"] |= sizes
    trace = _written(events, tmp_path / "trace.json")
    there = command("diff", predicted, trace, "--format", "json").report
    back = command("diff", trace, predicted, "--format", "json").report

    assert "added" in {s["reason"] for s in there["steps"] if s["name"] == "my::op"}
    assert "removed" in {s["reason"] for s in back["steps"] if s["name"] == "my::op"}
    assert {k: -v for k, v in _steps(there).items()} == _steps(back)
    assert 1 == pytest.approx(there["probability_slower"] + back["probability_slower"])


def test_the_median_step_is_taken(
    predicted: str, report: perfc.Report, tmp_path: Path, command: Command
) -> None:
    """Of several steps it is the median one, or of those that `--steps` names."""
    events, copies = _events(report, tmp_path), list[Event]()
    begin_us = 0.0
    for number, extra_us in enumerate((300.0, 100.0, 200.0)):
        copy: list[Event] = json.loads(json.dumps(events))
        op = next(e for e in copy if e["name"] == "aten::cat")
        _later(copy, op["ts"] + op["dur"] / 8, extra_us)
        for event in copy:
            event["ts"] += begin_us
            event["name"] = event["name"].replace("Step#0", f"Step#{number}")
            if "correlation" in event["args"]:
                event["args"]["correlation"] += number * 100_000
        copies += copy
        begin_us += round(report.time_us, 3) + extra_us
    trace = _written(copies, tmp_path / "trace.json")
    words = ("diff", predicted, trace, "--format", "json")
    found, chosen = command(*words).report, command(*words, "--steps", "1").report

    assert "ProfilerStep#2" == found["head"]["step"]
    assert found["difference_us"] == pytest.approx(200, abs=0.01)
    assert "ProfilerStep#1" == chosen["head"]["step"]
    assert chosen["difference_us"] == pytest.approx(100, abs=0.01)
    assert "is the median of 3 steps" in command(*words[:3]).out
    refused = command(*words, "--steps", "7")
    assert (1, "trace.json: no step 7") == (
        refused.code,
        Path(refused.error.split(";")[0]).name,
    )


def test_another_device_is_said(
    report: perfc.Report, tmp_path: Path, command: Command
) -> None:
    """A trace of another GPU is compared, with a warning."""
    _report(target="a100").to_json(tmp_path / "a100.json")
    report.to_trace(tmp_path / "trace.json")
    files = (str(tmp_path / "a100.json"), str(tmp_path / "trace.json"))

    assert "Warning: measured on v100" in command("diff", *files).out


def test_two_traces(report: perfc.Report, tmp_path: Path, command: Command) -> None:
    """Nothing is uncertain of them, so nothing is said of how probable it is."""
    trace = _written(_events(report, tmp_path), tmp_path / "trace.json")
    found = command("diff", trace, trace, "--format", "json").report

    assert ([], None) == (found["steps"], found["probability_slower"])
    assert "probability" not in command("diff", trace, trace).out


def test_a_trace_of_another_program(
    predicted: str, tmp_path: Path, command: Command
) -> None:
    """One line names the trace and the key, and nothing is written."""
    other = _report("resnet50", batch=8)
    trace = _written(_events(other, tmp_path), tmp_path / "trace.json")
    output = tmp_path / "diff.json"
    for files in ((predicted, trace), (trace, predicted)):
        words = ("--format", "json", "-o", str(output))
        refused = command("diff", *files, *words)

        assert 1 == refused.code
        assert refused.error.startswith(f'{trace}: traceEvents[].args["Input Dims"]: ')
        assert not output.exists()


def _without_shapes(events: list[Event]) -> list[Event]:
    """Return events as a profiler writes them that was not to record shapes."""
    for event in events:
        for key in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs"):
            event.get("args", {}).pop(key, None)
    return events


@pytest.mark.parametrize(
    ("model", "other"),
    [
        ("googlenet", "bert-base:layers=2"),
        ("googlenet", "dlrm-default"),
        ("dlrm-default", "resnet50"),
    ],
)
def test_a_trace_of_another_program_without_shapes(
    model: str, other: str, tmp_path: Path, command: Command
) -> None:
    """That both copy, add and launch a linear or two does not make them alike."""
    report = _report(model, batch=4)
    report.to_json(tmp_path / "report.json")
    events = _without_shapes(_events(_report(other, batch=2), tmp_path))
    trace = _written(events, tmp_path / "trace.json")
    files = (str(tmp_path / "report.json"), trace)
    refused = [command("diff", *files), command("diff", *reversed(files))]

    for one in refused:
        assert (1, 1) == (one.code, len(one.error.splitlines()))
        assert one.error.startswith(f"{trace}: traceEvents[].name: ")
        assert f"ops that {files[0]} has as many of" in one.error


def test_a_trace_that_differs_in_a_few_ops_without_shapes(
    predicted: str, report: perfc.Report, tmp_path: Path, command: Command
) -> None:
    """The same model with tables more, in another type, is compared."""
    other = _report(TABLES.replace("tables=2", "tables=3"), dtype="fp16")
    events = _without_shapes(_events(other, tmp_path))
    trace = _written(events, tmp_path / "trace.json")
    found = command("diff", predicted, trace, "--format", "json").report

    assert "trace-unlike" not in {d["code"] for d in found["diagnostics"]}
    assert report.time_us == found["base_us"]


def test_a_trace_of_another_mode_without_shapes(
    tmp_path: Path, command: Command
) -> None:
    """It is compared, and the warning says nothing of shapes."""
    _report("resnet50", batch=4).to_json(tmp_path / "report.json")
    events = _events(_report("resnet50", batch=4, mode="training"), tmp_path)
    trace = _written(_without_shapes(events), tmp_path / "trace.json")
    shown = command("diff", str(tmp_path / "report.json"), trace).out
    (warning,) = [line for line in shown.splitlines() if line.startswith("Warning: o")]

    assert "device's time is in ops that" in warning
    assert "has as many of: it may be of another program, mode or batch" in warning
    assert "shapes" not in warning


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"traceEvents": []}', "trace.json: no trace of PyTorch's profiler"),
        ('{"traceEvents": [', "trace.json: not valid JSON"),
        ('{"schemaVersion": 1}', "trace.json: no trace: expected 'traceEvents'"),
        ('{"schema": "perfc.report/0"}', "trace.json: schema: expected perfc.report/1"),
        ('{"schema": "perfc.sweep/1"}', "trace.json: schema: expected perfc.report/1"),
        ('{"nodes": []}', "trace.json: schema: expected a text, found None"),
        ("", "trace.json"),
    ],
)
def test_damaged_traces(
    text: str, message: str, predicted: str, tmp_path: Path, command: Command
) -> None:
    """One line names the file, and the key."""
    path = tmp_path / "trace.json"
    path.write_text(text, encoding="utf-8")
    refused = command("diff", predicted, str(path))

    assert 1 == refused.code
    assert message in refused.error


def test_a_trace_without_device_work(
    predicted: str, report: perfc.Report, tmp_path: Path, command: Command
) -> None:
    """There is nothing to compare."""
    events = [e for e in _events(report, tmp_path) if e.get("cat") == "cpu_op"]
    trace = _written(events, tmp_path / "trace.json")

    assert trace in command("diff", predicted, trace).error


def test_reports_may_be_gzipped(
    predicted: str, tmp_path: Path, command: Command
) -> None:
    """What a file is says its content, not its name."""
    zipped = tmp_path / "report.txt"
    zipped.write_bytes(gzip.compress(Path(predicted).read_bytes()))

    assert (
        []
        == command("diff", predicted, str(zipped), "--format", "json").report["steps"]
    )


def test_steps_need_a_trace(predicted: str, command: Command) -> None:
    """The option says what it is for."""
    refused = command("diff", predicted, predicted, "--steps", "1")

    assert (2, "--steps: expected a trace, found two reports") == (
        refused.code,
        refused.error,
    )


def test_in_python(report: perfc.Report, tmp_path: Path) -> None:
    """A path may stand for either side; steps are a range."""
    trace = _written(_events(report, tmp_path), tmp_path / "trace.json")

    assert 0 == pytest.approx(
        perfc.diff(report, trace, steps=range(1)).difference_us, abs=0.01
    )
    with pytest.raises(PerfcError, match="no step"):
        perfc.diff(report, trace, steps=range(5, 6))
    with pytest.raises(UsageError, match="expected a trace"):
        perfc.diff(report, report, steps=range(1))


@pytest.mark.parametrize("name", RESNET)
def test_public_traces(name: str, tmp_path: Path) -> None:
    """A step that was measured is compared whole: steps and ops sum to its time."""
    trace = DATA / "traces" / f"{name}.json.gz"
    if not trace.exists():
        pytest.skip("the public traces are not here; set PERFC_DATA")
    report = _report("resnet50", batch=32, mode="training")
    for found in (perfc.diff(report, trace, by) for by in BY):
        total_us = math.fsum(step.delta_us for step in found.steps)
        alone = [p for p in found.pairs if p.one.op == "aten::conv2d"]

        assert total_us == pytest.approx(found.difference_us, rel=1e-9)
        assert [] == [p for p in alone if p.base is None or p.head is None]


@pytest.mark.parametrize("name", RESNET)
def test_public_traces_of_another_program(
    name: str, tmp_path: Path, command: Command
) -> None:
    """A ResNet-50's training is not a DLRM, whether shapes were recorded or not."""
    trace = DATA / "traces" / f"{name}.json.gz"
    if not trace.exists():
        pytest.skip("the public traces are not here; set PERFC_DATA")
    _report("dlrm-default", "a100", batch=2048).to_json(tmp_path / "dlrm.json")
    refused = command("diff", str(tmp_path / "dlrm.json"), str(trace))

    assert 1 == refused.code
    assert refused.error.startswith(f"{trace}: traceEvents[].")
