"""Each thread of the host as one line of segments without holes.

An op at the top of a thread is taken apart as in a host profile: T2 up to its first
launch, T5 between launches, T3 after the last one, T0 for one that launches nothing;
T1 lies between two ops. Calls that take memory from the driver or wait are segments of
their own wherever they are, so that what they took is in no overhead.

While the autograd thread works, the thread that called `backward` waits for it. No
trace says so, but it shows: the ops of one lie inside a single segment of the other.
That segment then is two hand-overs, out and back.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence

import attrs

from perfc.traces.events import HostOp, RuntimeCall, Step, Thread, Trace
from perfc.traces.recorded import Gap
from perfc.traces.runtime import holds_up

_BETWEEN = (Gap.T1, Gap.PHASE)
"""Gaps between two ops."""

_IDLE = (*_BETWEEN, Gap.OFFSET)
"""Gaps in which a thread may wait for another one."""


@attrs.define(eq=False)
class Segment:
    """A stretch of one thread's time: a call, or the host's own time.

    Attributes:
        thread: Whose.
        start_us: When it began.
        end_us: When it ended.
        op: The op at the top of the thread that it belongs to, if any.
        call: The call that it is, if any.
        gap: What it is if it is no call.
        after: The segment of another thread that it waits for, if any.

    """

    thread: Thread
    start_us: float
    end_us: float
    op: HostOp | None
    call: RuntimeCall | None = None
    gap: Gap | None = None
    after: Segment | None = None


def host_lines(trace: Trace, issuing: Collection[int]) -> dict[Thread, list[Segment]]:
    """Return the segments of every thread that launches or waits, in order.

    Args:
        trace: The trace.
        issuing: Correlations that device work has.

    """
    ops: dict[Thread, list[HostOp]] = {}
    calls: dict[Thread, list[RuntimeCall]] = {}
    for op in trace.ops:
        if not op.is_label:
            ops.setdefault(op.thread, []).append(op)
    for call in trace.calls:
        if call.correlation in issuing or holds_up(call.name):
            calls.setdefault(call.thread, []).append(call)
    lines = {
        thread: list(_line(thread, _outermost(ops.get(thread, ())), calls[thread]))
        for thread in calls
    }
    _mark_phases(trace, lines)
    for process in {thread[0] for thread in calls}:
        _connect(trace, {t: line for t, line in lines.items() if t[0] == process})
    return lines


def _connect(trace: Trace, lines: dict[Thread, list[Segment]]) -> None:
    """Cut the main thread of a process at its steps, and tie its others to it."""
    main = main_thread(trace.steps, lines)
    if main not in lines:
        return
    own = [step for step in trace.steps if step.thread == main]
    _split(lines[main], own)
    _end(lines[main], own)
    starts = [segment.start_us for segment in lines[main]]
    for thread, line in lines.items():
        if thread != main:
            _join(lines[main], starts, line)


def main_thread(steps: Iterable[Step], threads: Collection[Thread]) -> Thread | None:
    """Return the thread that runs the model: of the steps, else the first to call.

    Of several processes, the one that comes first.
    """
    marked = (step.thread for step in steps)
    processes = {thread[0] for thread in threads}
    first = next(iter(threads), None)
    return next((thread for thread in marked if thread[0] in processes), first)


def _mark_phases(trace: Trace, lines: dict[Thread, list[Segment]]) -> None:
    """Tell gaps in which a label begins or ends from other gaps between ops."""
    borders: dict[Thread, list[float]] = {thread: [] for thread in lines}
    for op in trace.ops:
        if op.is_label and op.thread in borders:
            borders[op.thread] += (op.start_us, op.end_us)
    for thread, line in lines.items():
        marks = sorted(borders[thread])
        for segment in line:
            at = bisect_left(marks, segment.start_us)
            inside = at < len(marks) and marks[at] <= segment.end_us
            if segment.gap is Gap.T1 and inside:
                segment.gap = Gap.PHASE


def _outermost(ops: Iterable[HostOp]) -> list[HostOp]:
    found: list[HostOp] = []
    for op in ops:
        if not found or op.start_us >= found[-1].end_us:
            found.append(op)
    return found


def _line(
    thread: Thread, ops: Sequence[HostOp], calls: Sequence[RuntimeCall]
) -> Iterator[Segment]:
    """Yield the segments of one thread from the beginning of the trace."""
    reached, first = 0.0, True
    for op, inside in _with_calls(ops, calls):
        start_us = op.start_us if op is not None else inside[0].start_us
        gap = Gap.OFFSET if first else Gap.T1
        first = False
        if start_us > reached:
            yield Segment(thread, reached, start_us, None, gap=gap)
            reached = start_us
        at = 0
        for call in inside:
            if call.start_us > reached:
                kind = Gap.T5 if at else Gap.T2
                yield Segment(thread, reached, call.start_us, op, gap=kind)
            end_us = max(call.end_us, reached)
            yield Segment(thread, max(call.start_us, reached), end_us, op, call)
            reached, at = end_us, at + 1
        if op is not None and op.end_us > reached:
            kind = Gap.T3 if inside else Gap.T0
            yield Segment(thread, reached, op.end_us, op, gap=kind)
            reached = op.end_us


def _with_calls(
    ops: Sequence[HostOp], calls: Sequence[RuntimeCall]
) -> Iterator[tuple[HostOp | None, list[RuntimeCall]]]:
    """Yield each op with the calls in it, and calls outside of any op alone."""
    at = 0
    for op in ops:
        while at < len(calls) and calls[at].start_us < op.start_us:
            yield None, [calls[at]]
            at += 1
        inside: list[RuntimeCall] = []
        while at < len(calls) and calls[at].start_us <= op.end_us:
            inside.append(calls[at])
            at += 1
        yield op, inside
    for call in calls[at:]:
        yield None, [call]


def _split(line: list[Segment], steps: Sequence[Step]) -> None:
    """Cut the host's own time where an iteration begins or ends.

    What lies after an iteration that no other one follows is no overhead of any: the
    profiler that stops, an evaluation.
    """
    begins = {step.start_us for step in steps}
    for border_us in sorted(begins | {step.end_us for step in steps}, reverse=True):
        is_begin = border_us in begins
        at = bisect_left(line, border_us, key=_start) - 1
        if at < 0 or line[at].gap is None or border_us > line[at].end_us:
            continue
        before = line[at]
        if border_us < before.end_us:
            line.insert(at + 1, attrs.evolve(before, start_us=border_us))
            before.end_us = border_us
        if before.gap in _BETWEEN:
            before.gap = Gap.END
        if at + 1 < len(line) and line[at + 1].gap in _BETWEEN:
            line[at + 1].gap = Gap.BEGIN if is_begin else Gap.OFFSET


def _start(segment: Segment) -> float:
    return segment.start_us


def _end(line: list[Segment], steps: Sequence[Step]) -> None:
    """Extend a line to the end of the last iteration, after its last op and call."""
    last = line[-1]
    if steps and steps[-1].thread == last.thread and steps[-1].end_us > last.end_us:
        end_us = steps[-1].end_us
        line.append(Segment(last.thread, last.end_us, end_us, None, gap=Gap.END))


def _join(main: list[Segment], starts: list[float], other: list[Segment]) -> None:
    """Let two threads wait for each other where one works inside the other's gap.

    Both are changed in place; *starts*, when the segments of the main thread begin, is
    kept beside it, so that a thread of a few segments costs no look at all of them.
    """
    owner = [_around(main, starts, segment) for segment in other]
    for added, (first, last) in enumerate(list(_bursts(other, owner))):
        at = owner[first] + added
        back = _handed(main[at], other, first, last)
        main.insert(at + 1, back)
        starts.insert(at + 1, back.start_us)


def _around(main: Sequence[Segment], starts: Sequence[float], segment: Segment) -> int:
    """Return the number of the main thread's gap that *segment* lies in, or -1."""
    at = bisect_right(starts, segment.start_us) - 1
    if at < 0 or main[at].gap is None or segment.end_us > main[at].end_us:
        return -1
    return at


def _bursts(
    other: Sequence[Segment], owner: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Yield first and last of each run of segments that lie in one gap."""
    first = None
    for at, number in enumerate(owner):
        if first is not None and owner[first] != number:
            yield first, at - 1
            first = None
        if first is None and number >= 0 and other[at].gap not in _IDLE:
            first = at
    if first is not None:
        yield first, len(other) - 1


def _handed(gap: Segment, other: list[Segment], first: int, last: int) -> Segment:
    """Hand over from *gap* to a run of *other*, and back; return the way back."""
    end = other[last]
    before = other[first - 1] if first else None
    # The main thread waits from here on: its time after the run starts when that has
    # ended, whatever the run takes in a replay.
    back = Segment(gap.thread, end.end_us, gap.end_us, gap.op, gap=Gap.HAND_BACK)
    back.after = end
    # The other thread's idle time up to the run is no overhead of its own, but the time
    # that the hand-over takes.
    if before is not None and before.gap in _IDLE:
        before.gap, before.start_us = Gap.HAND_OVER, gap.start_us
        before.after = gap
    # What is left of the gap has no length, but remains as the task to wait for.
    gap.end_us = gap.start_us
    return back
