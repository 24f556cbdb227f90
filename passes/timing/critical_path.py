"""The pass `critical-path`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.ir import AnyKey, Program, TaskKind
from perfc.ir.launch import HOST_KINDS
from perfc.passes import facts
from perfc.passes.base import Pass, PassContext
from perfc.passes.columns import floats, integers
from perfc.passes.timing.task_kinds import task_kinds, task_mask
from perfc.passes.timing.timeline import TIMELINE, Timeline, latest_ends

_SEGMENT = {
    TaskKind.HOST: facts.SegmentKind.HOST,
    TaskKind.CALL: facts.SegmentKind.HOST,
    TaskKind.SYNC: facts.SegmentKind.SYNC,
    TaskKind.KERNEL: facts.SegmentKind.KERNEL,
    TaskKind.COPY: facts.SegmentKind.COPY,
    TaskKind.COLLECTIVE: facts.SegmentKind.COMM,
    # They take time only if the source states one.
    TaskKind.RECORD: facts.SegmentKind.IDLE,
    TaskKind.WAIT: facts.SegmentKind.IDLE,
}

_NUMBER = {kind: number for number, kind in enumerate(facts.SEGMENT_KINDS)}
_OWN = np.array([_NUMBER[_SEGMENT[kind]] for kind in TaskKind], dtype=np.int8)
"""Number of the segment of a task itself, by the number of its kind."""

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
    requires: ClassVar[frozenset[AnyKey]] = frozenset(
        {facts.SCHEDULE, TIMELINE, facts.HOSTED}
    )
    provides: ClassVar[frozenset[AnyKey]] = frozenset({facts.CRITICAL_PATH})

    def run(self, program: Program, ctx: PassContext) -> None:
        """Find it."""
        schedule = ctx.get(facts.SCHEDULE, program)
        hosted = ctx.get(facts.HOSTED, program)
        time_s = max(schedule.end_s, default=0.0)
        # The tasks of the path, first to last.
        tasks: list[int] = []
        task = schedule.end_s.index(time_s) if schedule.end_s else -1
        while task >= 0:
            tasks.append(task)
            task = schedule.cause[task]
        tasks.reverse()
        timeline = ctx.get(TIMELINE, program)
        path = facts.Path(
            time_s,
            tasks,
            partial(_segments, schedule, hosted, timeline, tasks),
            partial(_slack, schedule, timeline, tasks, time_s),
        )
        ctx.set(facts.CRITICAL_PATH, program, path)


def _segments(
    schedule: facts.Schedule,
    hosted: Sequence[facts.HostedLaunches],
    timeline: Timeline,
    tasks: list[int],
) -> facts.SegmentTable:
    """Return, for each task, the wait before it, if any, and its own time."""
    path = integers(tasks)
    start_s, duration_s = schedule.starts_s[path], schedule.durations_s[path]
    before = np.concatenate([[-1], path])[:-1]
    free_s = np.concatenate([[0.0], start_s + duration_s])[:-1]
    # The lag itself, not the difference: then every segment ends on the very float
    # at which the next one starts.
    masks = [task_mask(launches.graph, HOST_KINDS) for launches in hosted]
    launched = np.concatenate(masks)[before]
    lag_s = np.full(len(path), timeline.latency_s)
    idle = np.flatnonzero((start_s > free_s) & ~launched)
    neighbours = zip(before[idle].tolist(), path[idle].tolist(), strict=True)
    lag_s[idle] = [_gap_after_s(timeline, *tasks) for tasks in neighbours]
    wait = np.where(
        launched, _NUMBER[facts.SegmentKind.LAUNCH], _NUMBER[facts.SegmentKind.IDLE]
    )
    lasts = np.stack([start_s > free_s, duration_s > 0], axis=1).ravel()
    return facts.SegmentTable(
        np.stack([wait, _kinds(hosted)[path]], axis=1).ravel()[lasts],
        np.repeat(path, 2)[lasts],
        np.stack([free_s, start_s], axis=1).ravel()[lasts],
        np.stack([lag_s, duration_s], axis=1).ravel()[lasts],
    )


def _kinds(hosted: Sequence[facts.HostedLaunches]) -> NDArray[np.int8]:
    return np.concatenate([_OWN[task_kinds(launches.graph)] for launches in hosted])


def _gap_after_s(timeline: Timeline, before: int, task: int) -> float:
    """Return the gap after *before*, which decides the start of *task*.

    That of a collective may be decided on the stream of another member.
    """
    if timeline.previous[task] != before:
        task = timeline.previous.index(before)
    return timeline.gap_s[task]


def _slack(
    schedule: facts.Schedule, timeline: Timeline, tasks: list[int], time_s: float
) -> list[float]:
    late_s = floats(latest_ends(timeline, schedule.duration_s, time_s))
    slack_s = late_s - schedule.ends_s
    slack_s[slack_s < _ROUNDING * time_s] = 0.0
    slack_s[tasks] = 0.0
    slack: list[float] = slack_s.tolist()
    return slack
