"""Products of 8 bits that a file spells out with dequantised operands (QDQ).

A runtime that compiles makes one kernel of each; one that does not runs what is
written, and the report says what that costs.
"""

from __future__ import annotations

import math

import attrs

from perfc.costmodels import Target
from perfc.ir import Diagnostic, Graph, Node, PerfcError
from perfc.ir.support import Level
from perfc.tools.models import Model
from perfc.tools.reports import Report
from perfc.tools.request import INFERENCE
from perfc.tools.run import Run

UNFUSED = "unfused-qdq"
"""Code of the remark on products that are priced as they are written."""


APART = "weights-dequantized-apart"
"""Code of the remark on weights that kernels of their own turn into floats."""


def fused(model: Model, target: Target) -> Model:
    """Return a model as a runtime that compiles runs it on a target."""
    if not count_unfused(model, target):
        return model
    from perfc.passes.precision import FuseQdq

    return model.rewritten(FuseQdq())


def count_unfused(model: Model, target: Target) -> int:
    """Return how many products of a model could be of 8 bits on a target.

    None of a training step, whose gradients need the wide operands, nor where the
    target does not multiply in the type of one of them.
    """
    graphs = _dequantizing(model)
    if not graphs or model.mode != INFERENCE:
        return 0
    from perfc.passes.precision import unfused

    makers = [node.operands[0].producer for graph in graphs for node in unfused(graph)]
    types = {maker.operands[0].type for maker in makers if maker is not None}
    floats = any(each is not None and each.dtype.is_float for each in types)
    missing = floats and "fp8" not in target.device.flops_per_s
    return 0 if missing else len(makers)


def with_saving(run: Run) -> Run:
    """Say what it would save to fuse the products that are priced as written."""
    count = 0 if run.runtime == "compiled" else count_unfused(run.model, run.target)
    if not count:
        return run
    message = (
        f"{count} {'product is' if count == 1 else 'products are'} priced as written, "
        "on operands that kernels of their own dequantise"
    )
    try:
        other = attrs.evolve(run, model=fused(run.model, run.target))
        before_us = run.time_us()
        saved_us = before_us - other.time_us()
    except PerfcError as error:
        message += f"; they cannot be fused: {error}"
    else:
        saves = f"save {saved_us:,.1f} us" if round(saved_us, 1) > 0 else "save no time"
        message += (
            f"; fused into products of 8 bits (--pass fuse-qdq, part of --runtime "
            f"compiled) they would {saves} of {before_us:,.1f} us"
        )
    remark = Diagnostic(Level.NOTE, UNFUSED, message, run.model.name)
    return attrs.evolve(run, remarks=(*run.remarks, remark))


def with_weights(report: Report) -> Report:
    """Say what it takes to turn weights of few bits into floats as a model runs.

    Of products whose other operand is wide: those of two operands of 8 bits are fused
    or told by `with_saving`.
    """
    names = _apart(report.model)
    if not names:
        return report
    spent_us = math.fsum(n["duration_us"] for n in report.nodes if n["id"] in names)
    count = len(names)
    message = (
        f"{count} {'weight' if count == 1 else 'weights'} of few bits "
        f"{'is' if count == 1 else 'are'} dequantized by kernels of their own as the "
        f"model runs, which take {spent_us:,.1f} us of {report.time_us:,.1f} us; a "
        "product that unpacks its weight (--dtype w8a16 or w4a16 of the plain model) "
        "would save them, and the bytes that they write"
    )
    remark = Diagnostic(Level.NOTE, APART, message, report.model.name)
    told = (*report.analysis.diagnostics, remark)
    return attrs.evolve(
        report, analysis=attrs.evolve(report.analysis, diagnostics=told)
    )


def _dequantizing(model: Model) -> list[Graph]:
    graphs = [rank.ops for rank in model.program.classes if rank.ops is not None]
    return [one for one in graphs if any(node.op == "dequantize" for node in one)]


def _apart(model: Model) -> frozenset[str]:
    """Return the names of weights in floats that only products read."""
    graphs = _dequantizing(model)
    if not graphs:
        return frozenset()
    from perfc.passes.precision import unfused

    found: set[str] = set()
    for graph in graphs:
        pairs = {value for node in unfused(graph) for value in node.operands}
        stored = frozenset(graph.parameters)
        for node in graph:
            if node.op != "dequantize" or node.operands[0] not in stored:
                continue
            (wide,) = node.results
            readers = graph.readers(wide)
            if wide not in pairs and readers and all(map(_multiplies, readers)):
                found.add(node.name)
    return frozenset(found)


def _multiplies(node: Node) -> bool:
    return node.op in ("linear", "matmul", "conv")
