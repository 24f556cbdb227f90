"""The pass `critical-path`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import ClassVar

import attrs
import numpy as np

from perfc.ir import HOST_KINDS, AnyKey, Program, TaskKind
from perfc.passes.base import Pass, PassContext
from perfc.passes.facts import (
    CRITICAL_PATH,
    HOSTED,
    SCHEDULE,
    HostedLaunches,
    Path,
    Schedule,
    Segment,
    SegmentKind,
)
from perfc.passes.timeline import TIMELINE, Timeline, latest_ends

_SEGMENT = {
    TaskKind.HOST: SegmentKind.HOST,
    TaskKind.CALL: SegmentKind.HOST,
    TaskKind.SYNC: SegmentKind.SYNC,
    TaskKind.KERNEL: SegmentKind.KERNEL,
    TaskKind.COPY: SegmentKind.COPY,
    TaskKind.COLLECTIVE: SegmentKind.COMM,
    # They take time only if the source states one.
    TaskKind.RECORD: SegmentKind.IDLE,
    TaskKind.WAIT: SegmentKind.IDLE,
}

_ROUNDING = 1e-12
"""Slack below this share of the time is what sums of floats differ by."""


@attrs.frozen
class CriticalPath(Pass):
    """Find the chain of tasks and waits that makes the time what it is.

    The path runs back from the task that ends last, over the cause of each start.
    A host that waits for the device is not on it: the device's tasks are, and
    then the synchronisation's own duration. Tasks that take no time have no
    segment. Slack is exact, from one backward sweep over the same edges.
    """

    name: ClassVar[str] = "critical-path"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({SCHEDULE, TIMELINE, HOSTED})
    provides: ClassVar[frozenset[AnyKey]] = frozenset({CRITICAL_PATH})

    def run(self, program: Program, ctx: PassContext) -> None:
        """Find it."""
        schedule = ctx.get(SCHEDULE, program)
        hosted = ctx.get(HOSTED, program)
        time_s = max(schedule.end_s, default=0.0)
        tasks = _chain(schedule, time_s)
        timeline = ctx.get(TIMELINE, program)
        path = Path(
            time_s,
            tasks,
            partial(_segments, schedule, hosted, timeline, tasks),
            partial(_slack, schedule, timeline, tasks, time_s),
        )
        ctx.set(CRITICAL_PATH, program, path)


def _chain(schedule: Schedule, time_s: float) -> list[int]:
    """Return the tasks of the path, first to last."""
    tasks: list[int] = []
    task = schedule.end_s.index(time_s) if schedule.end_s else -1
    while task >= 0:
        tasks.append(task)
        task = schedule.cause[task]
    tasks.reverse()
    return tasks


def _segments(
    schedule: Schedule,
    hosted: Sequence[HostedLaunches],
    timeline: Timeline,
    tasks: list[int],
) -> list[Segment]:
    start_s, duration_s = schedule.start_s, schedule.duration_s
    kinds = list(chain.from_iterable(launches.graph.kind for launches in hosted))
    segments: list[Segment] = []
    end_s = 0.0
    before = -1
    for task in tasks:
        start = start_s[task]
        if start > end_s:
            # The lag itself, not the difference: then every segment ends on the
            # very float at which the next one starts.
            if kinds[before] in HOST_KINDS:
                kind, lag_s = SegmentKind.LAUNCH, timeline.latency_s
            else:
                kind, lag_s = SegmentKind.IDLE, _gap_behind_s(timeline, before, task)
            segments.append(Segment(kind, task, end_s, lag_s))
        duration = duration_s[task]
        if duration > 0:
            segments.append(Segment(_SEGMENT[kinds[task]], task, start, duration))
        end_s = start + duration
        before = task
    return segments


def _gap_behind_s(timeline: Timeline, before: int, task: int) -> float:
    """Return the gap behind *before*, which decides the start of *task*.

    That of a collective may be decided on the stream of another member.
    """
    if timeline.previous[task] != before:
        task = timeline.previous.index(before)
    return timeline.gap_s[task]


def _slack(
    schedule: Schedule, timeline: Timeline, tasks: list[int], time_s: float
) -> list[float]:
    late_s = np.array(latest_ends(timeline, schedule.duration_s, time_s))
    slack_s = late_s - np.array(schedule.end_s)
    slack_s[slack_s < _ROUNDING * time_s] = 0.0
    slack_s[tasks] = 0.0
    slack: list[float] = slack_s.tolist()
    return slack
