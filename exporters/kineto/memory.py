"""The memory of a trace: a counter of what is allocated on the device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfc.exporters.kineto.events import events, microseconds
from perfc.exporters.kineto.rank import RankTrace
from perfc.passes import MemoryUse
from perfc.tools import Results, memory_over_time


def memory_counters(rank: RankTrace, results: Results, use: MemoryUse) -> Sequence[str]:
    """Return the allocated bytes of a rank, where they change."""
    pid = next((lane.pid for lane in rank.lanes if lane.device >= 0), None)
    if pid is None:
        return ()
    curve = memory_over_time(results, rank.number, use)
    start_ns = np.rint(np.array(curve.start_us) * 1e3).astype(np.int64)
    head = f',\n{{"ph":"C","name":"device memory (bytes)","pid":{pid},"tid":0,"ts":'
    return events(
        [head] * len(start_ns),
        microseconds(start_ns),
        ',"args":{"allocated":',
        [*map(str, curve.allocated_bytes)],
        "}}",
    )
