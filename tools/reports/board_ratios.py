"""Kernels whose times on two boards differ by more than the boards' sheets do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs

from perfc.costmodels import COLLECTIVES, Target
from perfc.costmodels.gemm import times_computed
from perfc.costmodels.kernels import FLOATS, moved_s
from perfc.ir import Diagnostic, Kernel, LaunchOp
from perfc.ir.support import Level
from perfc.tools.reports.numbers import format_us
from perfc.tools.reports.report import Report
from perfc.tools.run import US

_BEYOND = 2
"""Times by which a ratio may exceed that of the sheets: whole waves of blocks, and what
of a peak a board reaches, make up to so much."""

_PARTS = 20
"""A kernel counts whose launches are one part in so many of a board's device time."""


@attrs.frozen
class _Launched:
    """A kernel as one report has it.

    Attributes:
        seconds: Of one launch.
        count: Number of launches.
        op: The first op that launches it.

    """

    seconds: float
    count: int
    op: LaunchOp


def beyond_sheets(reports: Sequence[Report]) -> Iterator[Diagnostic]:
    """Yield kernels whose times differ by more than twice what sheets of GPUs allow.

    Each report is compared with the first one of the same model.
    """
    firsts: dict[str, Report] = {}
    for report in reports:
        if report.target.device.synchronous:  # a CPU, whose kernels are others
            continue
        first = firsts.setdefault(report.called or report.model.name, report)
        if first is not report:
            yield from _beyond(first, report)
            yield from _beyond(report, first)


def _beyond(slow: Report, fast: Report) -> Iterator[Diagnostic]:
    launched, others = _launched(slow), _launched(fast)
    total_s = math.fsum(one.seconds * one.count for one in launched.values())
    for kernel, mine in launched.items():
        other = others.get(kernel)
        if other is None or mine.seconds * mine.count * _PARTS < total_s:
            continue
        allowed = _allowed(kernel, slow.target, fast.target)
        if mine.seconds > _BEYOND * allowed * other.seconds:
            times = (slow.target, mine), (fast.target, other)
            yield _remark(kernel, times, allowed)


def _launched(report: Report) -> Mapping[Kernel, _Launched]:
    """Return the kernels of the rank class that decides the time, but collectives."""
    results = report.results
    graph, costs = results.graphs[results.critical], results.costs[results.critical]
    counts, found = Counter(graph.kernel), dict[Kernel, _Launched]()
    for task, number in enumerate(graph.kernel):
        kernel = graph.kernels[number]
        if number >= 0 and kernel.op not in COLLECTIVES and kernel not in found:
            op = graph.ops[graph.op[task]]
            found[kernel] = _Launched(float(costs.seconds[number]), counts[number], op)
    return found


def _allowed(kernel: Kernel, slow: Target, fast: Target) -> float:
    """Return how many times as long sheets let a kernel take on one board, at most.

    The largest ratio of what can bound it: the peak of its math mode, bytes out of the
    faster board's caches and the slower one's memory, the clock, and any launch.
    """
    one, other = slow.device, fast.device
    ratios = [
        other.sm_clock_hz / one.sm_clock_hz,
        one.kernel_floor_s / other.kernel_floor_s,
    ]
    if kernel.work.flops:
        ratios.append(other.peak(kernel.math) / one.peak(kernel.math))
    moved = float(kernel.work.bytes)
    if moved:
        ratios.append(moved / one.memory.bytes_per_s / moved_s(moved, fast, FLOATS))
    return max(ratios)


def _remark(
    kernel: Kernel, times: Sequence[tuple[Target, _Launched]], allowed: float
) -> Diagnostic:
    (slow, mine), (fast, other) = times
    computed = [times_computed(kernel, each) for each, _ in times]
    why = "what the models of each know of such kernels is not the same"
    if computed[0] is not None and computed[1] is not None:
        why = (
            f"the tiles that they are priced by compute each result {computed[0]:.1f} "
            f"and {computed[1]:.1f} times, and another version of a library may choose "
            "others"
        )
    where = mine.op.node or mine.op.name
    times_us = [format_us(one.seconds * US) for _, one in times]
    message = (
        f"{mine.op.name} at {where} takes {times_us[0]} on {slow.name}, {times_us[1]} "
        f"on {fast.name}: {mine.seconds / other.seconds:.1f} times as long, where "
        f"their sheets allow {allowed:.1f}; {why}"
    )
    return Diagnostic(Level.WARNING, "beyond-sheets", message, where)
