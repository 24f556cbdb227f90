"""What decided the time of a measured step: the chain of tasks behind its end.

A prediction knows why each of its tasks began. A trace shows only when. How long a
launch takes to reach a stream that waits for it, and what lies between two kernels of
a busy stream, is seen where nothing else can have decided; so of all that a task may
have waited for, it is taken to be that which it followed with the least delay beyond
those. The chain runs back from the end of the step to its beginning, and its
stretches are all of the time between, whatever the trace leaves open.
"""

from __future__ import annotations

import enum
import statistics
from collections.abc import Iterable, Iterator, Sequence

import attrs

from perfc.ir import TaskKind
from perfc.ir.launch import BUSY_KINDS, HOST_KINDS
from perfc.traces import Recorded


class _Lag(enum.Enum):
    """What lies between the end of a task and the begin of one that waited for it."""

    LAUNCH = "from a call to what it issued"
    GAP = "between two tasks of a stream"
    GRAPH = "the same of two that one call issued"
    NONE = "nothing"


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
    _usual_us: dict[_Lag, float] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Find the task before each one on its thread or stream, and usual lags."""
        graph = self.recorded.graph
        last = [-1] * len(graph.resources)
        self._before = []
        for task, resource in enumerate(graph.resource):
            self._before.append(last[resource])
            last[resource] = task
        self._usual_us = {_Lag.NONE: 0.0}
        issued = [t for t in self.recorded.works if graph.issue[t] >= 0]
        # Where all else had ended when the call returned, the launch has decided; where
        # something ended later by more than a launch takes, that has.
        self._usual_us[_Lag.LAUNCH] = _median(self._lags_us(issued, _Lag.LAUNCH))
        for lag in (_Lag.GAP, _Lag.GRAPH):
            self._usual_us[lag] = _median(self._lags_us(issued, lag))

    def _lags_us(self, tasks: Sequence[int], kind: _Lag) -> Iterator[float]:
        """Yield the lags of a kind, of tasks that nothing else can have held up."""
        end_us, graph = self.recorded.end_us, self.recorded.graph
        for task in tasks:
            called_us = end_us[graph.issue[task]]
            others = [*self._waited_for(task)][1:]
            if kind is _Lag.LAUNCH:
                if all(end_us[other] <= called_us for other, _ in others):
                    yield self._lag_us(graph.issue[task], task)
            elif len(others) == 1 and others[0][1] is kind:
                reached_us = called_us + self._usual_us[_Lag.LAUNCH]
                if end_us[others[0][0]] >= reached_us:
                    yield self._lag_us(others[0][0], task)

    def _lag_us(self, other: int, task: int) -> float:
        return self.recorded.start_us[task] - self.recorded.end_us[other]

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
            if cause >= 0 and self.recorded.graph.kind[task] in HOST_KINDS:
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

    def _cause(self, task: int, reached_us: float) -> tuple[int, bool]:
        """Return the cause of a task's begin, and whether it is its own launch."""
        best, best_us, best_lag = -1, float("inf"), _Lag.NONE
        for other, lag in self._waited_for(task):
            if self.recorded.start_us[other] > reached_us or other >= task:
                continue
            us = self._lag_us(other, task) - self._usual_us[lag]
            if us < best_us:
                best, best_us, best_lag = other, us, lag
        return best, best_lag is _Lag.LAUNCH

    def _waited_for(self, task: int) -> Iterator[tuple[int, _Lag]]:
        """Yield possible causes of a task's begin, and which lag is after each.

        Waits of streams are looked through.
        """
        graph = self.recorded.graph
        issue, is_busy = graph.issue[task], graph.kind[task] in BUSY_KINDS
        if issue >= 0:
            yield issue, _Lag.LAUNCH
        left = [task]
        while left:
            one = left.pop()
            before = self._before[one]
            for other in (before, *graph.after[one]):
                if other >= 0 and graph.kind[other] is TaskKind.WAIT:
                    left.append(other)
                elif other >= 0 and (other != before or not is_busy):
                    yield other, _Lag.NONE
                elif other >= 0:
                    same = issue >= 0 and graph.issue[other] == issue
                    yield other, _Lag.GRAPH if same else _Lag.GAP


def _median(values: Iterable[float]) -> float:
    found = [*values]
    return statistics.median(found) if found else 0.0


def last_task(recorded: Recorded, tasks: Sequence[int], end_us: float) -> int:
    """Return the task that ended last, up to a time, of some; device before host."""
    busy = BUSY_KINDS

    def key(task: int) -> tuple[float, bool]:
        return min(recorded.end_us[task], end_us), recorded.graph.kind[task] in busy

    return max(tasks, key=key)
