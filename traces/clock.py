"""Times as traces write them, and clocks of host and device that do not agree."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from perfc.costmodels.constants import constants
from perfc.traces.events import DeviceWork, RuntimeCall, Stream

_LEAST_US = constants("traces").number("least_launch_us")
"""Least time from the beginning of a launch to that of its kernel."""

_TYPICAL_US = constants("traces").number("typical_launch_us")
_FEWEST = 20
_TENTH = 10
_WRITTEN_US = 1e-3
"""Traces are written to the nanosecond."""

_ULPS = 2
"""Units in the last place by which a sum of two decimals is off, at most."""


def skew_us(calls: Iterable[RuntimeCall], works: Sequence[DeviceWork]) -> float:
    """Return by how much to move device work so that causes come before effects.

    Traces of one machine have kernels that begin up to 50 us before their launches, all
    by the same time: the two clocks were not aligned. The shift puts the first tenth of
    the delays between launch and kernel where it is elsewhere. It is 0 for clocks that
    can be right.
    """
    began = {call.correlation: call.start_us for call in calls if call.correlation >= 0}
    delays = [
        work.start_us - began[work.correlation]
        for work in works
        if work.correlation in began
    ]
    # The least delay would be moved by one launch that was recorded wrongly, and the
    # mean by kernels that waited in their queue; the first tenth is that of idle
    # streams.
    if len(delays) < _FEWEST:
        return 0.0
    tenth = statistics.quantiles(delays, n=_TENTH)[0]
    return _TYPICAL_US - tenth if tenth < _LEAST_US else 0.0


def overlaps(works: Iterable[DeviceWork]) -> tuple[int, float]:
    """Return how many works begin before the previous one on their stream has ended.

    The second number is by how many microseconds they do, in all.

    Args:
        works: In the order of their starts.

    """
    reached_us: dict[Stream, float] = {}
    count, total_us = 0, 0.0
    for work in works:
        before_us = reached_us.get(work.stream, -math.inf)
        if work.start_us < before_us - _WRITTEN_US:
            count += 1
            total_us += min(before_us, work.end_us) - work.start_us
        reached_us[work.stream] = max(before_us, work.end_us)
    return count, total_us


def end_of(start_us: float, length_us: float) -> float:
    """Return when what began then ends, in whole nanoseconds if both are.

    So what begins where something else ends, as both are written, does so here, too,
    and is not within it.
    """
    end_us = start_us + length_us
    whole_us = round(end_us, 3)
    return whole_us if abs(whole_us - end_us) <= _ULPS * math.ulp(end_us) else end_us
