"""The pass `stream-schedule`."""

from __future__ import annotations

from typing import ClassVar

import attrs

from perfc.ir import AnyKey, Program
from perfc.passes.base import Pass, PassContext
from perfc.passes.demands import demands_of
from perfc.passes.facts import HOSTED, KERNEL_COST, SCHEDULE, Schedule
from perfc.passes.sharing import shared_durations
from perfc.passes.task_durations import task_durations
from perfc.passes.timeline import TIMELINE, link, solve


@attrs.frozen
class StreamSchedule(Pass):
    """Find when every task of every rank class runs.

    Every task starts as soon as the rules of time of `perfc.ir.LaunchGraph` let
    it; collectives tie the classes together. Times start at 0.

    Attributes:
        contention: Whether collectives and kernels that run side by side slow each
            other down: they share SMs, device memory, links and NICs (`sharing.py`).

    Raises:
        ScheduleError: a task has no duration, or collectives deadlock.

    """

    name: ClassVar[str] = "stream-schedule"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({HOSTED, KERNEL_COST})
    provides: ClassVar[frozenset[AnyKey]] = frozenset({SCHEDULE, TIMELINE})

    contention: bool = False

    def run(self, program: Program, ctx: PassContext) -> None:
        """Schedule."""
        hosted = ctx.get(HOSTED, program)
        costs = ctx.get(KERNEL_COST, program)
        duration_s = task_durations(hosted, costs)
        timeline = link(hosted, ctx.target)
        if self.contention:
            demands = demands_of(timeline, costs, ctx.target)
            duration_s = shared_durations(timeline, duration_s, demands)
        start_s, end_s, cause = solve(timeline, duration_s)
        schedule = Schedule(timeline.offsets, duration_s, start_s, end_s, cause)
        ctx.set(SCHEDULE, program, schedule)
        ctx.set(TIMELINE, program, timeline)
