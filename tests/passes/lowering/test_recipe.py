"""Lowering again at other sizes: the same as lowering anew."""

from __future__ import annotations

from pathlib import Path

import pytest

import perfc
from perfc.ir import LaunchGraph
from perfc.ir.support import VerifyError
from perfc.ir.text import parse_program
from perfc.passes import LAUNCHES
from perfc.tools import Model, Report

# Two GEMMs whose sizes meet at B = 64: one signature there, two elsewhere.
MEETING = """graph @g(%x: f32[B,64], %y: f32[64,64], param %w: f32[64,64]) {
  %a = linear(%x, %w) : ?
  %b = linear(%y, %w) : ?
  return %a, %b
}
"""


def _model(tmp_path: Path, batch: int) -> Model:
    path = tmp_path / "meeting.perfc"
    path.write_text(MEETING, encoding="utf-8")
    return perfc.load(path, dims={"B": batch})


def _launches(report: Report) -> LaunchGraph:
    analysis = report.analysis
    facts = analysis.annotations.get(LAUNCHES, analysis.program, analysis.scenario)
    return facts[0]


@pytest.mark.parametrize("first", [32, 64, 4096])
@pytest.mark.parametrize("then", [16, 64, 2048])
def test_order_of_batches_does_not_matter(
    tmp_path: Path, first: int, then: int
) -> None:
    """A batch analyzed after another gives what it gives alone, to the byte."""
    model = _model(tmp_path, first)
    perfc.analyze(model, "a100")
    again = perfc.analyze(model.bind(dims={"B": then}), "a100", overheads="lin-v100")
    alone = perfc.analyze(_model(tmp_path, then), "a100", overheads="lin-v100")

    assert alone.to_json() == again.to_json()


@pytest.mark.parametrize("name", ["dlrm-mlperf", "dlrm-default:embedding=batched"])
def test_workloads_are_the_same_at_any_batch_in_any_order(name: str) -> None:
    """So it is with whole models, on other targets between."""
    model = perfc.load(name, batch=100)
    for target in ("v100", "a100"):
        perfc.analyze(model, target)
    again = perfc.analyze(model.bind(batch=777), "h100")
    alone = perfc.analyze(perfc.load(name, batch=777), "h100")

    assert alone.to_json() == again.to_json()


def test_a_changed_graph_is_lowered_anew() -> None:
    """A node added after an analysis is in the next one."""
    model = perfc.load("dlrm-ddp", batch=64)
    before = len(_launches(perfc.analyze(model, "a100")))
    ops = model.program.classes[0].ops
    assert ops is not None
    node = ops.add("exp", [ops.outputs[0]], ["more"])
    node.results[0].type = ops.outputs[0].type

    assert before + 2 == len(_launches(perfc.analyze(model, "a100")))


def test_a_complete_launch_graph_refuses_tasks() -> None:
    """What lowering made is remembered, so nobody may add to it."""
    graph = _launches(perfc.analyze(perfc.load("dlrm-ddp", batch=4), "a100"))

    with pytest.raises(VerifyError, match="complete"):
        graph.task(graph.kind[0], 0)


def test_a_launch_graph_of_the_user_is_looked_at_anew() -> None:
    """Stated times changed between analyses count."""
    text = """launches @l {
  thread "main"
  stream "s"
  call {on = 0, seconds = 1e-06}
  kernel {on = 1, issue = 0, seconds = 1e-05}
}
"""
    program = parse_program(text)
    model = Model(program, perfc.load("dlrm-ddp", batch=1).annotations, program)
    before_us = perfc.analyze(model, "a100").time_us
    launches = program.classes[0].launches
    assert launches is not None
    launches.stated_s[1] = 3e-5

    assert pytest.approx(before_us + 20.0) == perfc.analyze(model, "a100").time_us


def test_text_of_an_analysis_can_be_analyzed(tmp_path: Path) -> None:
    """What `opt` prints after lowering is a program like any other."""
    path = tmp_path / "lowered.perfc"
    path.write_text(
        "program @both { ranks [0] {\n"
        "graph @g(%x: f32[4,4]) {\n  %y = relu(%x) : f32[4,4]\n  return %y\n}\n"
        'launches @l {\n  thread "main"\n  host {on = 0, seconds = 1e-06}\n}\n'
        "} }\n",
        encoding="utf-8",
    )

    assert pytest.approx(1.0) == perfc.analyze(str(path), "a100").time_us
