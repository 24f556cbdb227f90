"""The table of the planned models' kernels is what lowering makes of the models."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import perfc
from perfc.measure.case import Case
from perfc.measure.kernel_table import workload_table

FOLDER = Path(__file__).parents[2] / "benchmarks"
COMMAND = "python benchmarks/collection/kernels.py"
SCAN = """\
graph @scan(%x: f32[4,8]) {
  %a = gelu(%x) : ?
  %b = cumsum(%a) {axis = 1} : ?
  return %b
}
"""
STALE = f"lowering has changed: write the table anew by `{COMMAND}`, and read the diff"


def _module(name: str) -> Any:
    """Load a script of the folder, with those that it imports."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(f"collection.{name}")
    finally:
        sys.path.remove(str(FOLDER))


kernels, calls, plan = (_module(name) for name in ("kernels", "calls", "plan"))
PLANNED = plan.planned()


def _settings() -> list[Any]:
    """Return the first setting of each model, mode and dtype, and all optimizers."""
    found: dict[tuple[object, ...], Any] = {}
    for one in PLANNED:
        key = (one.name, one.mode, one.dtype, one.optimizer)
        found.setdefault(key, one)
    return list(found.values())


@pytest.mark.parametrize("setting", _settings(), ids=str)
def test_the_table_is_fresh(setting: Any) -> None:
    """All calls of a model are in the table."""
    report = kernels.analyzed(setting)
    made = {call.case for call in calls.calls_of(report, setting.batch)} - {None}

    assert made <= {Case(*row) for row in workload_table()}, STALE


@pytest.mark.slow
def test_all_of_the_table_is_fresh() -> None:
    """Order and numbers, too, for all settings."""
    made = kernels.Table.of(PLANNED).cases()

    assert kernels.WORKLOAD_TABLE.read_text(encoding="utf-8") == made, STALE


def test_no_kernel_is_lost_or_counted_twice() -> None:
    """Calls share out all kernels of the graph, and all of their predicted time."""
    setting = next(s for s in PLANNED if s.name == "resnet50" and s.dtype == "tf32")
    report = kernels.analyzed(setting)
    graph, costs = report.results.hosted[0].graph, report.results.costs[0].seconds
    launched = [number for number in graph.kernel if number >= 0]
    found = calls.calls_of(report, setting.batch)

    assert Counter(graph.kernels[number] for number in launched) == Counter(
        kernel for call in found for kernel in call.kernels
    )
    assert pytest.approx(sum(costs[number] for number in launched)) == sum(
        call.seconds for call in found
    )


def test_libraries_kernels_go_with_the_gemm() -> None:
    """A convolution that turns layouts is one call, so is each of its gradients."""
    setting = next(s for s in PLANNED if s.name == "resnet50" and s.dtype == "tf32")
    report = kernels.analyzed(setting)
    found = calls.calls_of(report, setting.batch)
    gemms = {"conv2d", "gemm"}
    beside = {
        call.case.op
        for call in found
        if len(call.kernels) > 1 and call.case.op in gemms
    }
    sizes = {
        len(call.kernels) == 1 + call.kernels[0].params.integer("beside", 0)
        for call in found
        if call.case.op in gemms
    }

    assert gemms == beside
    assert {True} == sizes


def test_what_no_call_runs_alone_is_named(tmp_path: Path) -> None:
    """A kernel without a family has no case, and its time is not covered."""
    path = tmp_path / "scan.perfc"
    path.write_text(SCAN, encoding="utf-8")
    report = perfc.analyze(perfc.load(path), "h100", inputs="device")
    tables = kernels.Table()
    setting = plan.Planned(model="scan", batch=4, mode="inference")
    tables.add(setting, calls.calls_of(report, 4))
    (line, *_) = tables.report()

    assert {"elementwise"} == {case.op for case in tables.numbers}
    assert tables.covered_s[setting] < tables.active_s[setting]
    assert line.endswith("inference, fp32, eager; without 1 scan cumsum")
