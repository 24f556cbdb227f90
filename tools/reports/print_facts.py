"""Print a program with the facts an analysis found, as perfc assembly.

Facts are comments: the text reads back as the program. Where kernels have been
lowered, the launch graph of each rank class follows its op graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TypeVar

import attrs

from perfc.ir import AnnotationKey, LaunchGraph, Node, Value, node_kinds
from perfc.ir.dims import Dim
from perfc.ir.program import RankClass
from perfc.ir.record import format_attribute
from perfc.ir.text import print_program
from perfc.passes import facts
from perfc.passes.manager import Analysis
from perfc.passes.memory import MEMORY
from perfc.passes.what_if import WHAT_IF, Savings

T = TypeVar("T")
_MAX_ELEMENTS = 16
"""More elements of a folded tensor are not shown."""


def print_analysis(analysis: Analysis) -> str:
    """Return the program's text; facts and remarks are comments."""
    hosted = _fact(analysis, facts.HOSTED) or ()
    graphs = (
        tuple(item.graph for item in hosted) or _fact(analysis, facts.LAUNCHES) or ()
    )
    program = analysis.program
    if graphs:
        classes = [
            RankClass(rank.ranks, rank.ops, graph)
            for rank, graph in zip(program.classes, graphs, strict=True)
        ]
        program = attrs.evolve(program, classes=tuple(classes))
    elements: dict[Value, tuple[Dim, ...]] = {}
    for found in analysis.annotations.table(facts.ELEMENTS, analysis.scenario).values():
        elements.update(found)
    times = dict(zip(graphs, _times(analysis, graphs), strict=True))
    text = print_program(
        program,
        lambda node: _node_comment(node, elements),
        lambda graph, task: times[graph][task] if graph in times else "",
    )
    return text + "".join(f"// {line}\n" for line in _footer(analysis))


def _fact(analysis: Analysis, key: AnnotationKey[T]) -> T | None:
    return analysis.annotations.table(key, analysis.scenario).get(analysis.program)


def _node_comment(node: Node, elements: Mapping[Value, tuple[Dim, ...]]) -> str:
    if node_kinds.is_constant(node):  # they are among its attributes
        return ""
    known = [
        f"{value} = {format_attribute(elements[value])}"
        for value in node.results
        if value in elements and len(elements[value]) <= _MAX_ELEMENTS
    ]
    return ", ".join(known)


def _times(analysis: Analysis, graphs: tuple[LaunchGraph, ...]) -> list[list[str]]:
    """Return one comment per task: when it runs, or else what it takes."""
    if _fact(analysis, facts.SCHEDULE) is not None:
        return _intervals(analysis, graphs)
    texts = [[""] * len(graph) for graph in graphs]
    estimates = _fact(analysis, facts.KERNEL_COST) or ()
    for found, graph, estimate in zip(texts, graphs, estimates, strict=False):
        for task, kernel in enumerate(graph.kernel):
            if kernel >= 0 and math.isnan(graph.stated_s[task]):
                provenance = estimate.provenance[kernel].value
                model = f"{estimate.model[kernel]}, {provenance}"
                found[task] = f"{_us(estimate.seconds[kernel])} ({model})"
    hosted = _fact(analysis, facts.HOSTED) or ()
    for found, item in zip(texts, hosted, strict=False):
        for task, seconds in enumerate(item.host_s):
            if not math.isnan(seconds):
                found[task] = _us(seconds)
    return texts


def _intervals(analysis: Analysis, graphs: tuple[LaunchGraph, ...]) -> list[list[str]]:
    schedule = _fact(analysis, facts.SCHEDULE)
    if schedule is None:
        return []
    path = _fact(analysis, facts.CRITICAL_PATH)
    critical = {segment.task for segment in path.segments} if path is not None else ()
    texts: list[list[str]] = []
    for offset, graph in zip(schedule.offsets, graphs, strict=True):
        texts.append([])
        for task in range(offset, offset + len(graph)):
            start, end = schedule.start_s[task], schedule.end_s[task]
            mark = " critical" if task in critical else ""
            texts[-1].append(f"{start * 1e6:.6g}..{_us(end)}{mark}")
    return texts


def _footer(analysis: Analysis) -> Iterator[str]:
    path = _fact(analysis, facts.CRITICAL_PATH)
    if path is not None:
        yield f"time: {_us(path.time_s)}"
        for segment in path.segments:
            yield f"  {segment.kind.value} {segment.task}: {_us(segment.duration_s)}"
    interval = _fact(analysis, facts.INTERVAL)
    if interval is not None:
        yield f"90 % interval: {interval.low_s * 1e6:.6g}..{_us(interval.high_s)}"
    savings = _fact(analysis, WHAT_IF)
    if savings is not None:
        yield from _savings(savings)
    uses = _fact(analysis, MEMORY)
    for number, use in enumerate(uses if uses is not None else ()):
        where = f" at %{use.node}" if use.node else ""
        yield f"memory of rank class {number}: {use.peak_bytes} bytes{where}"
        for buffer in use.live:
            yield f"  {buffer.kind.value} {buffer.name}: {buffer.nbytes} bytes"
    for remark in analysis.diagnostics:
        where = f" [{remark.where}]" if remark.where else ""
        line = f"{remark.level.value} {remark.code}: {remark.message}{where}"
        yield line.replace("\n", " ")


def _savings(savings: Savings) -> Iterator[str]:
    for op in savings.ops:
        yield (
            f"op {op.op} of rank class {op.rank} saves {_us(op.twice_s)} twice as "
            f"fast, {_us(op.bound_s)} at its bound, {_us(op.host_twice_s)} with the "
            "host twice as fast"
        )
    for site in savings.sites:
        times = f"{_us(site.twice_s)} twice as fast, {_us(site.bound_s)} at its bound"
        yield f"{len(site.ops)} x {site.name} saves {times}"
    for host in savings.host:
        times = f"{_us(host.twice_s)} twice as fast, {_us(host.free_s)} if free"
        yield f"host {host.detail} saves {times}"


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.6g} us"
