"""Calls that issued device work, and the order in which the host did things."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from perfc.traces.events import DeviceWork, RuntimeCall, Stream, Thread, Trace
from perfc.traces.host_lines import Segment
from perfc.traces.runtime import holds_up, is_record, is_stream_wait

_SAME_US = 1e-3
"""Traces are written to the nanosecond."""


def works_by_call(trace: Trace) -> dict[int, list[DeviceWork]]:
    """Return device work by the correlation of the call that issued it."""
    calls = {call.correlation for call in trace.calls if call.correlation >= 0}
    found: dict[int, list[DeviceWork]] = {}
    for work in trace.works:
        if work.correlation in calls:
            found.setdefault(work.correlation, []).append(work)
    return found


def in_order(
    lines: Mapping[Thread, Sequence[Segment]], calls: Iterable[RuntimeCall]
) -> Iterator[tuple[Segment | None, RuntimeCall]]:
    """Yield segments, and calls about events, in the order of the host."""
    marks = [
        (call.start_us, call.start_us, None, call)
        for call in calls
        if (is_stream_wait(call.name) or is_record(call.name))
        and not holds_up(call.name)
    ]
    segments = [
        (s.start_us, s.end_us, s, s.call) for line in lines.values() for s in line
    ]
    for _, _, segment, call in sorted([*segments, *marks], key=lambda item: item[:2]):
        yield segment, call  # type: ignore[misc]


def waits_in_graph(works: Sequence[DeviceWork]) -> list[int]:
    """Return which earlier work of the same CUDA graph each waits for, -1 for none.

    No call of the host tells, so the times have to: where one of another stream was the
    last to end before it began, it waited for that one.

    Args:
        works: What one call issued, in the order of their starts.

    """
    found: list[int] = []
    ended: dict[Stream, list[int]] = {}
    for number, work in enumerate(works):
        # Only the last to end can have released the work: the others ended earlier, and
        # an edge from one of them would not move it.
        done = [_last_done(queue, works, work) for queue in ended.values()]
        last = max(done, key=lambda n: works[n].end_us if n >= 0 else 0.0, default=-1)
        own = ended.setdefault(work.stream, [])
        is_other = last >= 0 and works[last].stream != work.stream
        # If the predecessor on its own stream ended later, that one explains the start,
        # and an edge to another stream would be invented.
        later = not own or works[last].end_us > works[own[-1]].end_us
        found.append(last if is_other and later else -1)
        own.append(number)
    return found


def _last_done(
    queue: Sequence[int], works: Sequence[DeviceWork], work: DeviceWork
) -> int:
    """Return the last of a stream that had ended when *work* began, -1 for none."""
    latest_us = work.start_us + _SAME_US
    return next((n for n in reversed(queue) if works[n].end_us <= latest_us), -1)
