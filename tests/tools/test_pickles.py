"""Reports and models are data: they are pickled, copied and shown in short."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tools import results

import perfc
from perfc.costmodels import load_profile
from perfc.tools.replay import read_recorded, replay_alone
from perfc.tools.request import Request

_MOST = 500
"""Characters that a `repr` may have."""

_LOOP = Path(__file__).parents[1] / "fixtures/onnx/bag_dynamo_max_offsets.onnx"


def _recorded() -> perfc.Report:
    layers = [torch.nn.Linear(8, 8) for _ in range(400)]
    module, values = torch.nn.Sequential(*layers), torch.zeros(4, 8)
    model = perfc.from_torch(module, values, mode="training", optimizer="sgd")
    return perfc.analyze(model, "a100")


def _trained(**options: Any) -> perfc.Report:
    name = "dlrm-ddp:tables=4,rows=1000"
    return perfc.analyze(name, mode="training", batch=64, **options)


_REPORTS: dict[str, Callable[[], perfc.Report]] = {
    "training": lambda: _trained(target="v100"),
    "ranks": lambda: _trained(target="dgx-a100", ranks=8),
    "cpu": lambda: _trained(target="cpu"),
    "graph": lambda: _trained(target="a100", runtime="cudagraph", inputs="device"),
    "loop": lambda: perfc.analyze(_LOOP, "a100", batch=8),
    "recorded": _recorded,
}


def again(value: Any) -> Any:
    """Return what comes out of a pickle."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own


@pytest.mark.parametrize("name", _REPORTS)
def test_a_report_is_pickled(name: str) -> None:
    """It says the same afterwards, what-ifs included, which are run anew."""
    report = _REPORTS[name]()
    found: perfc.Report = again(report)

    assert report.to_json() == found.to_json()
    assert str(report) == str(found)
    assert report.what_if == copy.deepcopy(report).what_if


def test_a_report_in_another_process(tmp_path: Path) -> None:
    """It needs nothing of the process that made it."""
    report, path = _trained(target="a100"), tmp_path / "report.pickle"
    path.write_bytes(pickle.dumps(report))
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).to_json())"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, check=True
    )

    assert report.to_json() == done.stdout.decode().replace("\r", "")[:-1]


def test_a_model_is_pickled() -> None:
    """It can be bound, converted and analyzed as before; a loop is bound anew."""
    for text, batch in ((_LOOP, 8), ("dlrm-ddp:tables=2,rows=1000", 64)):
        model = perfc.load(text, batch=batch)
        found: perfc.Model = again(model)
        for one in (model, found):
            one.bind(2 * batch)
        assert perfc.analyze(model.bind(16), "a100", dtype="bf16").to_json() == (
            perfc.analyze(found.bind(16), "a100", dtype="bf16").to_json()
        )


def test_a_graph_is_copied() -> None:
    """A copy is a graph of its own: its nodes, their users and regions hang together.

    It has more nodes than Python may nest calls.
    """
    model = perfc.load("gpt2:layers=45,hidden=64,heads=4,vocab=100", batch=1)
    graph = model.program.classes[0].ops
    assert graph is not None
    found = again(graph)

    assert sys.getrecursionlimit() < len(graph) == len(found)
    for node, other in zip(graph, found, strict=True):
        assert (node.name, node.op, str(node.operands)) == (
            other.name,
            other.op,
            str(other.operands),
        )
    assert sum(map(len, graph.nest.readers.values())) == sum(
        map(len, found.nest.readers.values())
    )
    found.add("relu", [found.outputs[0]], ["more"])
    assert len(found) == len(graph) + 1


def test_a_request_is_pickled() -> None:
    """So what was asked can be asked elsewhere."""
    asked = Request(model="gpt2", target="a100", batch=8, dims={"a": 1})

    assert (asked.model, asked.batch, asked.dims) == (
        again(asked).model,
        again(asked).batch,
        again(asked).dims,
    )


def _objects(folder: Path) -> dict[str, object]:
    """Return one of everything large that a call returns."""
    report, sharding, compared = (
        results.report(),
        results.sharding(),
        results.comparison(),
    )
    report.to_trace(folder / "step.json")
    recorded = read_recorded([folder / "step.json"])
    found: dict[str, object] = {
        "report": report,
        "model": report.model,
        "request": sharding.model.request,
        "run": report.run,
        "analysis": report.analysis,
        "results": report.results,
        "program": report.model.program,
        "class": report.model.program.classes[0],
        "graph": report.model.program.classes[0].ops,
        "launches": report.results.graphs[0],
        "memory": report.memory_use,
        "savings": report.savings,
        "target": report.target,
        "device": report.target.device,
        "host": load_profile("shared"),
        "sharding": sharding,
        "plan": sharding.best,
        "shard model": sharding.model,
        "question": compared.question,
        "comparison": compared,
        "findings": compared.findings,
        "recorded": recorded[0],
        "trace": recorded[0].trace,
        "replayed": replay_alone(recorded, None, None, None, contention=True)[0],
    }
    for name in ("hosted", "costs", "schedule", "timeline", "path", "interval"):
        value = getattr(report.results, name)
        found[name] = value[0] if isinstance(value, tuple) else value
    return found


def test_what_calls_return_is_shown_in_short_and_pickled(tmp_path: Path) -> None:
    """No `repr` is longer than a few lines; a pickle has the same."""
    found = _objects(tmp_path)
    shown = {name: repr(value) for name, value in found.items()}

    assert {} == {name: text for name, text in shown.items() if len(text) > _MOST}
    assert shown == {name: repr(again(value)) for name, value in found.items()}


def test_a_report_is_shown() -> None:
    """Its `repr` has the model, the target, the time, the interval and the bound."""
    report = _trained(target="v100")
    low_us, high_us = report.interval_us

    assert (
        f"<Report dlrm-ddp on v100-sxm2-16g, eager: {report.time_us:.6g} us "
        f"({low_us:.6g} to {high_us:.6g}), bound by {report.summary['bound']}>"
    ) == repr(report)
    assert "<Model dlrm-ddp: training, batch 64>" == repr(report.model)
