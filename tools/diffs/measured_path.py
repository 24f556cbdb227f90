"""What decided the time of a measured step: the chain of tasks behind its end.

A prediction knows why each of its tasks began. A trace shows only when: of all that a task
may have waited for, it is taken to be what ended last, each with the lag that usually
follows it. The chain runs back from the end of the step to its beginning, and its
segments are all of the time between, whatever the trace leaves open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from perfc.ir import TaskKind
from perfc.ir.launch import BUSY_KINDS, HOST_KINDS
from perfc.traces import Recorded


@attrs.frozen
class Stretch:
    """A stretch of the time of a step.

    Attributes:
        task: What the time went to, or what waited; -1 at the ends of a step.
        waits: Whether the task did not run yet.
        launched: Whether it waited for the device to begin what the host had launched.
        us: How long it is.

    """

    task: int
    waits: bool
    launched: bool
    us: float


@attrs.define(eq=False)
class MeasuredPath:
    """Looks for the chain in one trace.

    Attributes:
        recorded: The trace.

    """

    recorded: Recorded
    _before: list[int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Find the task before each one on its thread or stream."""
        graph = self.recorded.graph
        last = [-1] * len(graph.resources)
        self._before = []
        for task, resource in enumerate(graph.resource):
            self._before.append(last[resource])
            last[resource] = task

    def stretches(self, last: int, begin_us: float, end_us: float) -> list[Stretch]:
        """Return the stretches from a beginning to an end, the first one first.

        Args:
            last: The task that ended last in between.
            begin_us: Where they begin.
            end_us: Where they end.

        """
        found = [*self._backwards(last, begin_us, end_us)]
        found.reverse()
        return found

    def _backwards(
        self, task: int, begin_us: float, reached_us: float
    ) -> Iterator[Stretch]:
        start_us, end_us = self.recorded.start_us, self.recorded.end_us
        if end_us[task] < reached_us:
            yield Stretch(-1, True, False, reached_us - max(end_us[task], begin_us))
            reached_us = max(end_us[task], begin_us)
        while task >= 0 and reached_us > begin_us:
            cause, lags = self._cause(task, reached_us)
            began_us = start_us[task]
            if cause >= 0 and self._runs_on(task):
                began_us = max(began_us, end_us[cause])
            began_us = min(max(began_us, begin_us), reached_us)
            if began_us < reached_us:
                yield Stretch(task, False, False, reached_us - began_us)
            free_us = began_us if cause < 0 else min(end_us[cause], began_us)
            free_us = max(free_us, begin_us)
            if free_us < began_us:
                yield Stretch(task, True, lags, began_us - free_us)
            task, reached_us = cause, free_us
        if reached_us > begin_us:
            yield Stretch(-1, True, False, reached_us - begin_us)

    def _runs_on(self, task: int) -> bool:
        """Whether a task had begun before what it waited for had ended: a call."""
        return self.recorded.graph.kind[task] in HOST_KINDS

    def _cause(self, task: int, reached_us: float) -> tuple[int, bool]:
        """Return what a task waited for, and whether that is the call that issued it."""
        best, best_us, launched = -1, float("-inf"), False
        for other, lag_us, is_issue in self._waited_for(task):
            begun_us = self.recorded.start_us[other]
            if begun_us > reached_us or other >= task:
                continue
            us = min(self.recorded.end_us[other], reached_us) + lag_us
            if us > best_us:
                best, best_us, launched = other, us, is_issue
        return best, launched

    def _waited_for(self, task: int) -> Iterator[tuple[int, float, bool]]:
        """Yield what a task may have waited for, with the lag after it.

        Waits of streams are looked through.
        """
        recorded, graph = self.recorded, self.recorded.graph
        is_busy = graph.kind[task] in BUSY_KINDS
        if graph.issue[task] >= 0:
            yield graph.issue[task], recorded.launch_latency_us, True
        waits: list[int] = [task]
        while waits:
            one = waits.pop()
            before = self._before[one]
            for other in (*graph.after[one], before):
                if other < 0:
                    continue
                if graph.kind[other] is TaskKind.WAIT:
                    waits.append(other)
                    continue
                same = graph.issue[other] == graph.issue[task]
                gap_us = recorded.graph_gap_us if same else recorded.stream_gap_us
                yield other, gap_us if is_busy else 0.0, False


def last_task(recorded: Recorded, tasks: Sequence[int], end_us: float) -> int:
    """Return the task that ended last, up to a time, of some; device before host."""
    busy = BUSY_KINDS

    def key(task: int) -> tuple[float, bool]:
        return min(recorded.end_us[task], end_us), recorded.graph.kind[task] in busy

    return max(tasks, key=key)
