"""The memory of a trace: a counter of what is allocated on the device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfc.exporters.kineto.events import events, microseconds
from perfc.exporters.kineto.rank import RankTrace
from perfc.passes import MemoryUse
from perfc.tools import memory_timeline


def memory_counters(rank: RankTrace, use: MemoryUse) -> Sequence[str]:
    """Return the allocated bytes of a rank, where they change."""
    pid = next((lane.pid for lane in rank.lanes if lane.device >= 0), None)
    if pid is None:
        return ()
    shown, _, start_ns, end_ns = rank.op_slices
    numbers: list[int] = shown.tolist()
    nodes = [rank.graph.ops[number].node for number in numbers]
    times_ns = zip(start_ns.tolist(), end_ns.tolist(), strict=True)
    spans = dict(zip(nodes, times_ns, strict=True))
    points = memory_timeline(use, spans)
    head = f',\n{{"ph":"C","name":"device memory (bytes)","pid":{pid},"tid":0,"ts":'
    return events(
        [head] * len(points),
        microseconds(np.array([time_ns for time_ns, _ in points], dtype=np.int64)),
        ',"args":{"allocated":',
        [str(allocated) for _, allocated in points],
        "}}",
    )
