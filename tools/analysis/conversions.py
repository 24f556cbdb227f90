"""What kernels take that do nothing but convert activations to few bits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs

from perfc.ir import Diagnostic, Graph, Node, Value
from perfc.ir.support import Level
from perfc.tools.reports import Report
from perfc.tools.request import INFERENCE

APART = "activations-quantized-apart"
"""Code of the remark on activations that kernels of their own quantise."""

_QUANTIZES = frozenset({"quantize", "dynamic_quantize"})
_VIEWS = frozenset({"reshape", "flatten", "transpose", "cast"})


def own_us(report: Report, names: Collection[str]) -> float:
    """Return the time of kernels of nothing but ops of these names, in microseconds.

    That of the rank that spends most on them.
    """
    times: dict[int, float] = defaultdict(float)
    for row in _own(report, names):
        times[row["rank"]] += row["duration_us"]
    return max(times.values(), default=0.0)


def with_activations(report: Report) -> Report:
    """Say what it takes to quantise activations by kernels that do nothing else.

    Of those that a kernel before makes, which could write them in few bits.
    """
    # The ops that quantise what others have made, and the names of that.
    # Those that find the scale of a whole tensor are among them. What is dequantised
    # again has a remark of its own (`fused_pairs`); what is returned is what was asked.
    model = report.model
    sources: dict[str, str] = {}
    graphs = [rank.ops for rank in model.program.classes if rank.ops is not None]
    for graph in graphs:
        for node in graph:
            if node.op in _QUANTIZES and _is_made(node.operands[0]):
                sources |= _of_one(graph, node)
    if not sources:
        return report
    spent_us = own_us(report, sources)
    if not spent_us:
        return report
    told = (*report.analysis.diagnostics, _remark(report, sources, spent_us))
    return attrs.evolve(
        report, analysis=attrs.evolve(report.analysis, diagnostics=told)
    )


def _remark(report: Report, sources: Mapping[str, str], spent_us: float) -> Diagnostic:
    ops = {name for row in _own(report, sources) for name in _ops(row)}
    count = len({sources[name] for name in ops})
    what, done = ("activation", "is") if count == 1 else ("activations", "are")
    if report.model.mode != INFERENCE:
        what += " or their gradients"
    message = (
        f"{count} {what} {done} quantized by kernels that do nothing else, which take "
        f"{spent_us:,.1f} us of {report.time_us:,.1f} us "
        f"({100 * spent_us / report.time_us:.1f} %); fused into the kernels before "
        "them they would save up to that, and their launches"
    )
    if report.runtime != "compiled" and not report.target.device.synchronous:
        message += " (--runtime compiled fuses those after elementwise ops and norms)"
    return Diagnostic(Level.NOTE, APART, message, report.model.name)


def _own(report: Report, names: Collection[str]) -> Iterator[dict[str, Any]]:
    for row in report.nodes:
        if all(name in names for name in _ops(row)):
            yield row


def _ops(row: Mapping[str, Any]) -> Sequence[str]:
    return row["fuses"] or (row["id"],)


def _of_one(graph: Graph, node: Node) -> dict[str, str]:
    (x, *scales) = node.operands
    readers = [each.op for value in node.results for each in graph.readers(value)]
    if not readers or "dequantize" in readers:
        return {}
    makers = [value.producer for value in scales]
    ops = [node, *(each for each in makers if each is not None and each.op == "amax")]
    return {each.name: x.name for each in ops}


def _is_made(value: Value) -> bool:
    while value.producer is not None and value.producer.op in _VIEWS:
        value = value.producer.operands[0]
    return value.producer is not None
