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
    spans = {
        rank.graph.ops[op].node: (span.start_ns / 1000, span.end_ns / 1000)
        for op, span in rank.op_spans.items()
    }
    for time_us, allocated in memory_timeline(report.memory_use, spans):
        yield (
            f'{{"ph":"C","name":"device memory (bytes)","pid":{pid},"tid":0,'
            f'"ts":{time_us:.3f},"args":{{"allocated":{allocated}}}}}'
        )
