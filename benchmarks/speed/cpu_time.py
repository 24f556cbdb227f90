"""CPU time as a ratio: a fixed loop, and the least that calls took, done in turn.

A ratio of two CPU times of one run is much the same on a fast and a slow machine. The
least of many repetitions is what was disturbed least by what else runs there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

STEPS = 130_000
LOOP = "loop"
"""What times are divided by, beside the times of others."""


def loop() -> int:
    """Count in a dictionary: about 10 ms of nothing but the interpreter."""
    counts: dict[int, int] = {}
    for step in range(STEPS):
        key = step * 7 & 1023
        counts[key] = counts.get(key, 0) + step
    return len(counts)


def cpu_s(call: Callable[[], object]) -> float:
    """Return the CPU seconds of one call, those of its threads included."""
    started = time.process_time()
    call()
    return time.process_time() - started


def least(
    calls: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[Callable[[], object]], float] = cpu_s,
) -> dict[str, float]:
    """Return the least time of each of *calls*, all repeated in turn.

    One more round comes first and is not counted: it imports and fills caches.
    """
    for call in calls.values():
        call()
    times = [{name: clock(calls[name]) for name in calls} for _ in range(rounds)]
    return {name: min(each[name] for each in times) for name in calls}
