"""The `memory` of a report, and memory over time."""

from __future__ import annotations

from typing import Any, TypeAlias

from perfc.ir import HOST_KINDS
from perfc.passes import LASTING, MemoryUse
from perfc.tools.results import Results

Json: TypeAlias = dict[str, Any]
US = 1e6
_LIVE = 20
"""Buffers that a report lists: so many that stay, and so many that do not."""


def memory_report(use: MemoryUse) -> Json:
    """Return the `memory` of a report.

    Every `…_bytes` but `reserved_bytes` is what PyTorch's allocator counts as
    allocated; `reserved_bytes` is what it has taken from the device for that.
    """
    passing = [b for b in use.live if b.kind not in LASTING]
    lasting = [b for b in use.live if b.kind in LASTING]
    return {
        "peak_bytes": use.peak_bytes,
        "parameters_bytes": use.parameters_bytes,
        "activations_bytes": use.activations_bytes,
        "optimizer_bytes": use.optimizer_bytes,
        "library_bytes": use.library_bytes,
        "reserved_bytes": use.reserved_bytes,
        "at_node": use.node,
        "at_phase": use.phase,
        "live_at_peak": [
            {"name": b.name, "kind": b.kind.value, "bytes": b.allocated_bytes}
            for b in (*passing[:_LIVE], *lasting[:_LIVE])
        ],
    }


def memory_timeline(
    results: Results, use: MemoryUse, rank: int = 0
) -> list[tuple[float, int]]:
    """Return (microseconds, allocated bytes): the curve steps at each point.

    Eager PyTorch allocates when the host begins an op; what the op frees when it ends
    shows where the next one begins. A node whose op costs the host nothing (in a CUDA
    graph, all of them) makes no step: the memory of a graph stays allocated, so its
    curve is flat at the peak.

    Args:
        results: The analysis.
        use: Memory of the rank class.
        rank: Number of the rank class.

    """
    spans = _host_spans_us(results, rank)
    steps = [
        (spans[name][0], during)
        for name, during in zip(use.nodes, use.during_bytes, strict=True)
        if name in spans
    ]
    if not steps:
        return [(0.0, use.peak_bytes)] if use.peak_bytes else []
    before = sum(b.allocated_bytes for b in use.live if b.first < 0)
    end_us = max(spans[name][1] for name in use.nodes if name in spans)
    points = [(0.0, before), *steps, (end_us, use.after_bytes[-1])]
    return [p for i, p in enumerate(points) if i == 0 or p[1] != points[i - 1][1]]


def _host_spans_us(results: Results, rank: int) -> dict[str, tuple[float, float]]:
    """Return when the host begins and ends each op, by the name of its node.

    T1, the time between ops, belongs to none.
    """
    graph, offset = results.hosted[rank].graph, results.schedule.offsets[rank]
    schedule = results.schedule
    spans: dict[str, tuple[float, float]] = {}
    columns = zip(graph.op, graph.kind, graph.detail, strict=True)
    for task, (op, kind, detail) in enumerate(columns, offset):
        if op < 0 or kind not in HOST_KINDS or detail == "T1":
            continue
        start_us, end_us = schedule.start_s[task] * US, schedule.end_s[task] * US
        name = graph.ops[op].node
        spans[name] = (min(spans.get(name, (start_us,))[0], start_us), end_us)
    return spans
