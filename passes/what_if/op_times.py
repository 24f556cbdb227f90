"""How long everything takes when the tasks of one op take less, for every op.

`times_of_windows` answers for windows of tasks that follow one another in the order in
which a timeline is solved. Here ops get such windows: tasks of all ranks are put into
that order, and windows that overlap, because ops do, are asked apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TypeAlias

import attrs

from perfc.passes import timing
from perfc.passes.facts import Schedule
from perfc.passes.timing import solve_many

Asked: TypeAlias = tuple[Sequence[int], Sequence[timing.Change]]
"""Flat numbers of the tasks of an op, and changes of them."""

_BATCH = 32
"""Changes that are timed together."""

_SHORT, _SPREAD = 64, 4
"""A window has so many tasks at most, or so many times those of its op."""


def times_of_ops(
    timeline: timing.Timeline, schedule: Schedule, queries: Sequence[Asked]
) -> list[list[float]]:
    """Return when the last task ends, under each change of each op.

    Args:
        timeline: Who waits for whom.
        schedule: When the tasks run without a change.
        queries: Ops, each with tasks, and changes of these.

    """
    flat = _Flat.of(timeline, schedule)
    found: list[list[float]] = [[] for _ in queries]
    windows: list[tuple[timing.Window, int]] = []
    apart: list[int] = []
    for number, (tasks, _) in enumerate(queries):
        places = [flat.place[task] for task in tasks]
        window = timing.Window(min(places), max(places))
        length = window.last + 1 - window.first
        if length <= max(_SHORT, _SPREAD * len(tasks)):
            windows.append((window, number))
        else:
            apart.append(number)
    for layer in _layers(windows):
        questions: list[timing.Question] = [
            (window, [flat.moved(change) for change in queries[number][1]])
            for window, number in layer
        ]
        times = timing.times_of_windows(flat.timeline, flat.schedule, questions)
        for (_, number), of_op in zip(layer, times, strict=True):
            found[number] = of_op
    changes = [change for number in apart for change in queries[number][1]]
    solved = iter(solve_in_batches(timeline, schedule, changes))
    for number in apart:
        found[number] = [next(solved) for _ in queries[number][1]]
    return found


def solve_in_batches(
    timeline: timing.Timeline, schedule: Schedule, changes: Sequence[timing.Change]
) -> list[float]:
    """Return when the last task ends, under each change of any tasks."""
    batches = (changes[i : i + _BATCH] for i in range(0, len(changes), _BATCH))
    duration_s = schedule.duration_s
    solved = (solve_many(timeline, duration_s, batch) for batch in batches)
    return list(chain.from_iterable(solved))


def _layers(
    windows: Sequence[tuple[timing.Window, int]],
) -> list[list[tuple[timing.Window, int]]]:
    """Return windows in ascending order, in as few lists without overlap as can be."""
    layers: list[list[tuple[timing.Window, int]]] = []
    for item in sorted(windows, key=lambda item: (item[0].first, item[1])):
        free = (layer for layer in layers if layer[-1][0].last < item[0].first)
        layer = next(free, None)
        if layer is None:
            layers.append([item])
        else:
            layer.append(item)
    return layers


@attrs.frozen(eq=False)
class _Flat:
    """A timeline whose tasks are numbered in the order in which it is solved.

    Attributes:
        timeline: Its edges.
        schedule: When its tasks run.
        place: The new number of each task.

    """

    timeline: timing.Timeline
    schedule: Schedule
    place: Sequence[int]

    @classmethod
    def of(cls, timeline: timing.Timeline, schedule: Schedule) -> _Flat:
        """Number tasks anew, if there is need to."""
        if all(not group for _, group in timeline.stages):
            in_order = chain.from_iterable(tasks for tasks, _ in timeline.stages)
            if all(map(int.__eq__, in_order, range(len(timeline)))):
                return cls(timeline, schedule, range(len(timeline)))
        writer = _Writer(timeline, schedule)
        writer.write()
        flat = attrs.evolve(
            timeline,
            offsets=(0,),
            previous=writer.previous,
            gap_s=writer.gap_s,
            issue=writer.issue,
            after=writer.after,
            stages=[(range(len(writer.previous)), ())],
        )
        solved = timing.solve(flat, writer.duration_s)
        renumbered = Schedule((0,), writer.duration_s, *solved)
        return cls(flat, renumbered, writer.place)

    def moved(self, change: timing.Change) -> timing.Change:
        """Return a change by the new numbers."""
        return {self.place[task]: seconds for task, seconds in change.items()}


@attrs.define(eq=False)
class _Writer:
    """Numbers the tasks of a timeline anew.

    Tasks that start together do so when the last of them could: each waits for tasks
    without a duration, one for each of them, which wait for what it waits for.
    """

    source: timing.Timeline
    schedule: Schedule
    place: list[int] = attrs.field(init=False)
    previous: list[int] = attrs.field(factory=list[int], init=False)
    gap_s: list[float] = attrs.field(factory=list[float], init=False)
    issue: list[int] = attrs.field(factory=list[int], init=False)
    after: list[tuple[int, ...]] = attrs.field(
        factory=list[tuple[int, ...]], init=False
    )
    duration_s: list[float] = attrs.field(factory=list[float], init=False)

    def write(self) -> None:
        """Go through the stages."""
        self.place = [-1] * len(self.source)
        duration_s = self.schedule.duration_s
        for tasks, group in self.source.stages:
            for task in tasks:
                self.place[task] = self._add(task, duration_s[task])
            arrivals = tuple([self._add(task, 0.0) for task in group])
            for task in group:
                self.place[task] = len(self.previous)
                self._append(-1, 0.0, -1, arrivals, duration_s[task])

    def _add(self, task: int, seconds: float) -> int:
        """Add what waits for what a task waits for; return its number."""
        source, place = self.source, self.place
        before, call = source.previous[task], source.issue[task]
        self._append(
            place[before] if before >= 0 else -1,
            source.gap_s[task],
            place[call] if call >= 0 else -1,
            tuple([place[other] for other in source.after[task]]),
            seconds,
        )
        return len(self.previous) - 1

    def _append(
        self,
        previous: int,
        gap_s: float,
        issue: int,
        after: tuple[int, ...],
        seconds: float,
    ) -> None:
        self.previous.append(previous)
        self.gap_s.append(gap_s)
        self.issue.append(issue)
        self.after.append(after)
        self.duration_s.append(seconds)
