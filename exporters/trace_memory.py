"""The memory of a trace: a counter of what is allocated on the device."""

from __future__ import annotations

from collections.abc import Iterator

from perfc.exporters.trace_rank import RankTrace
from perfc.tools import Report, memory_timeline


def memory_counters(rank: RankTrace, report: Report) -> Iterator[str]:
    """Return the allocated bytes of the first rank class, where they change."""
    pid = next((lane.pid for lane in rank.lanes if lane.device >= 0), None)
    if pid is None:
        return
    shown, _, start_ns, end_ns = rank.op_slices
    times_us = zip((start_ns / 1e3).tolist(), (end_ns / 1e3).tolist(), strict=True)
    ops: list[int] = shown.tolist()
    nodes = [rank.graph.ops[op].node for op in ops]
    spans = dict(zip(nodes, times_us, strict=True))
    for time_us, allocated in memory_timeline(report.memory_use, spans):
        yield (
            f'{{"ph":"C","name":"device memory (bytes)","pid":{pid},"tid":0,'
            f'"ts":{time_us:.3f},"args":{{"allocated":{allocated}}}}}'
        )
