"""Activations that kernels quantise which do nothing else: what a report says."""

from __future__ import annotations

import pytest

import perfc
from perfc.ir.text import parse_program
from perfc.passes.precision import Quantize
from perfc.tools.models.model import prepare

_BLOCK = """
graph @block(%x: f16[64,256], param %v: f16[512,256], param %w: f16[512,512]) {
  %first = linear(%x, %v) : f16[64,512]
  %y = gelu(%first) : f16[64,512]
  %z = linear(%y, %w) : f16[64,512]
  return %z
}
"""


@pytest.mark.parametrize("source", ["dynamic", "dynamic-tensor", "static"])
@pytest.mark.parametrize("target", ["a100", "cpu"])
def test_activations_that_are_quantised_apart(source: str, target: str) -> None:
    """The input of a model has no kernel before it that could quantise it."""
    model = prepare(parse_program(_BLOCK.replace("f16", "f32")))
    small = model.rewritten(Quantize(linear="int8", activations=source))
    report = perfc.analyze(small, target)
    (remark,) = [
        d for d in report.diagnostics if d.code == "activations-quantized-apart"
    ]
    taken = sum(
        row["duration_us"]
        for row in report.nodes
        if row["id"].startswith("z.")
        and ("quantize" in row["id"] or "amax" in row["id"])
    )

    assert taken > 0
    assert f"take {taken:,.1f} us of {report.time_us:,.1f} us" in remark.message
    assert f"({100 * taken / report.time_us:.1f} %)" in remark.message
    assert remark.message.startswith("1 activation is quantized")
    assert ("--runtime compiled" in remark.message) == (target == "a100")


def test_activations_that_a_kernel_before_quantises() -> None:
    """Compiled, the op before writes the few bits: nothing is left to fuse."""
    small = prepare(parse_program(_BLOCK)).rewritten(
        Quantize(linear="int8", activations="dynamic")
    )
    fused = perfc.analyze(small, "a100", runtime="compiled")

    assert "activations-quantized-apart" not in {d.code for d in fused.diagnostics}


def test_training_says_what_converting_takes() -> None:
    """What the step makes, not its inputs, nor weights, which the optimizer writes."""
    report = perfc.analyze(
        "dlrm-ddp:tables=2,rows=1000", "h100", batch=64, mode="training", dtype="fp8"
    )
    (remark,) = [
        d for d in report.diagnostics if d.code == "activations-quantized-apart"
    ]
    graph = report.model.program.classes[0].ops
    assert graph is not None
    given = {f"{value.name}.fp8.quantize" for value in graph.inputs}
    given |= {f"{value.name}.fp8.quantize" for value in graph.parameters}
    casts = {
        row["id"]: row["duration_us"]
        for row in report.nodes
        if row["op"] == "transformer_engine::cast_transpose"
    }
    taken = sum(us for name, us in casts.items() if name not in given)

    assert given & casts.keys()
    assert "activations or their gradients are quantized" in remark.message
    assert f"take {taken:,.1f} us" in remark.message
