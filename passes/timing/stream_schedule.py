"""The pass `stream-schedule`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs

from perfc.costmodels import Estimate, Target
from perfc.ir import AnyKey, Program, TaskKind, UsageError
from perfc.ir.launch import ResourceKind
from perfc.passes import timing
from perfc.passes.base import Pass, PassContext
from perfc.passes.facts import HOSTED, KERNEL_COST, SCHEDULE, HostedLaunches, Schedule
from perfc.passes.timing.task_durations import task_durations
from perfc.passes.timing.timeline import TIMELINE, Timeline, link, solve


@attrs.frozen
class StreamSchedule(Pass):
    """Find when every task of every rank class runs.

    Every task starts as soon as the rules of time of `perfc.ir.LaunchGraph` let
    it; collectives tie the classes together. Times start at 0.

    Attributes:
        contention: Whether collectives and kernels that run side by side slow each
            other down: they share SMs, device memory, links and NICs, and collectives
            wait for room (`sharing.py`). Without collectives nothing changes.
        high_priority: Streams that go first in that, as `comm`; several with commas
            between.

    """

    name: ClassVar[str] = "stream-schedule"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({HOSTED, KERNEL_COST})
    provides: ClassVar[frozenset[AnyKey]] = frozenset({SCHEDULE, TIMELINE})

    contention: bool = True
    high_priority: str = ""

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        if self.high_priority and not self.contention:
            msg = (
                f"high-priority={self.high_priority} of {self.name}: streams compete "
                "with contention=true only"
            )
            raise UsageError(msg)

    def run(self, program: Program, ctx: PassContext) -> None:
        """Schedule."""
        hosted, costs = ctx.get(HOSTED, program), ctx.get(KERNEL_COST, program)
        timeline, schedule = self.scheduled(hosted, costs, ctx.target)
        ctx.set(SCHEDULE, program, schedule)
        ctx.set(TIMELINE, program, timeline)

    def scheduled(
        self,
        hosted: Sequence[HostedLaunches],
        costs: Sequence[Estimate],
        target: Target,
    ) -> tuple[Timeline, Schedule]:
        """Return who waits for whom, and when every task runs."""
        duration_s = self.durations_s(hosted, costs)
        timeline = link(hosted, target)
        first = self._first(timeline)
        if self.shares(timeline):
            demands = timing.demands_of(timeline, costs, target, first)
            shared = timing.share(timeline, duration_s, demands)
            timeline, duration_s = timing.with_waits(timeline, shared), shared.taken_s
        start_s, end_s, cause = solve(timeline, duration_s)
        schedule = Schedule(timeline.offsets, duration_s, start_s, end_s, cause)
        return timeline, schedule

    def durations_s(
        self, hosted: Sequence[HostedLaunches], costs: Sequence[Estimate]
    ) -> list[float]:
        """Return the seconds of every task, in flat order."""
        return task_durations(hosted, costs)

    def shares(self, timeline: Timeline) -> bool:
        """Whether tasks that run side by side slow each other down."""
        return self.contention and any(
            TaskKind.COLLECTIVE in graph.kind for graph in timeline.graphs
        )

    def _first(self, timeline: Timeline) -> frozenset[str]:
        """Return the names of the streams of high priority."""
        names = [name.strip() for name in self.high_priority.split(",")]
        streams = {
            resource.name
            for graph in timeline.graphs
            for resource in graph.resources
            if resource.kind is ResourceKind.STREAM
        }
        unknown = [name for name in names if name not in streams]
        if self.high_priority and unknown:
            listed = ", ".join(sorted(streams)) or "none"
            msg = (
                f"high-priority={self.high_priority} of {self.name}: no stream "
                f"{unknown[0]!r}; streams: {listed}"
            )
            raise UsageError(msg)
        return frozenset(names) & streams
