"""The rules of time where kernels of several streams compete for the SMs.

An SM takes a block of another kernel when it has room. While a kernel has blocks left
that do not fit, it leaves none: a kernel of another stream begins with its last wave of
blocks. A kernel of a stream of high priority begins as soon as any block ends, which is
at once. Copies have engines of their own; collectives hold few SMs while they wait for
other ranks: neither waits, and nobody waits for them.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs

from perfc.ir import TaskKind
from perfc.passes.timing.timeline import Timeline


def solve_contended(
    timeline: Timeline,
    duration_s: Sequence[float],
    full_s: Mapping[int, float],
    urgent: Collection[int] = (),
) -> tuple[list[float], list[float], list[int]]:
    """Return start, end and cause of every task, as `solve`, event by event.

    What a kernel waits for depends on who came first, so there is no order of the
    tasks that holds for other durations.

    Args:
        timeline: Who waits for whom otherwise.
        duration_s: Seconds of each task.
        full_s: For how long from its start a kernel leaves no room; those that always
            do are absent.
        urgent: Kernels of streams of high priority.

    """
    contest = _Contest(timeline, duration_s, full_s, frozenset(urgent))
    contest.run()
    return contest.start_s, contest.end_s, contest.cause


Place: TypeAlias = tuple[int, int]
"""Rank class and device."""


@attrs.define(eq=False)
class _Contest:
    """Starts tasks in the order of time.

    Attributes:
        timeline: Who waits for whom.
        duration_s: Seconds of each task.
        full_s: For how long a kernel leaves no room.
        urgent: Kernels that do not wait for that.
        start_s: When each task starts.
        end_s: When it ends.
        cause: What decided its start, -1 for nothing.

    """

    timeline: Timeline
    duration_s: Sequence[float]
    full_s: Mapping[int, float]
    urgent: frozenset[int]
    start_s: list[float] = attrs.field(init=False)
    end_s: list[float] = attrs.field(init=False)
    cause: list[int] = attrs.field(init=False)
    _open: list[int] = attrs.field(init=False)
    _followers: list[list[int]] = attrs.field(init=False)
    _ready: list[tuple[float, int]] = attrs.field(init=False)
    _full: dict[Place, tuple[float, int]] = attrs.field(
        factory=dict["Place", "tuple[float, int]"], init=False
    )
    """Until when there is no room, and for which kernel, by place."""

    def run(self) -> None:
        """Start every task."""
        self._prepare()
        places = places_of(self.timeline, frozenset({TaskKind.KERNEL}))
        groups = meetings(self.timeline)
        missing = {members: len(members) for members in groups.values()}
        # Tasks start in the order of time, because whether there is room depends on
        # what started before. No later event can produce an earlier one: durations and
        # lags are not negative.
        while self._ready:
            now_s, task = heapq.heappop(self._ready)
            place = places.get(task)
            if place is not None and self._waits(task, now_s, place):
                continue
            if task not in groups:
                self._start(task, now_s)
                continue
            members = groups[task]
            missing[members] -= 1
            # Events come in the order of time, so the last member sets the start of
            # all.
            if not missing[members]:
                for member in members:
                    self._start(member, now_s, self.cause[task])

    def _prepare(self) -> None:
        """Count what each task waits for, and list who waits for it."""
        count = len(self.timeline)
        self.start_s, self.end_s = [0.0] * count, [0.0] * count
        self.cause, self._open = [-1] * count, [0] * count
        self._followers = [[] for _ in range(count)]
        for task in range(count):
            for before, _ in edges(self.timeline, task):
                self._followers[before].append(task)
                self._open[task] += 1
        # Sorted, and so a heap.
        self._ready = [(0.0, task) for task in range(count) if not self._open[task]]

    def _waits(self, task: int, now_s: float, place: Place) -> bool:
        """Put a kernel back if one that leaves no room runs where it would."""
        # A kernel that was put back tries again when there is room. Another kernel may
        # have taken that room at the same time; then it is put back once more.
        room_s, full = self._full.get(place, (0.0, -1))
        if room_s > now_s and task not in self.urgent:
            self.cause[task] = full
            heapq.heappush(self._ready, (room_s, task))
            return True
        # An urgent kernel may start while another one fills the device: there is room
        # only when both leave some.
        if task in self.full_s:
            self._full[place] = max((room_s, full), (now_s + self.full_s[task], task))
        return False

    def _start(self, task: int, now_s: float, last: int = -1) -> None:
        """Start a task; *last* decided when a collective could begin."""
        if self._arrival(task)[0] < now_s and last >= 0:
            self.cause[task] = last
        self.start_s[task] = now_s
        self.end_s[task] = now_s + self.duration_s[task]
        for other in self._followers[task]:
            self._open[other] -= 1
            if not self._open[other]:
                at_s, self.cause[other] = self._arrival(other)
                heapq.heappush(self._ready, (at_s, other))

    def _arrival(self, task: int) -> tuple[float, int]:
        """Return when a task could start without contention, and what decides that."""
        at_s, cause = 0.0, -1
        for before, lag_s in edges(self.timeline, task):
            if self.end_s[before] + lag_s > at_s:
                at_s, cause = self.end_s[before] + lag_s, before
        return at_s, cause


def edges(timeline: Timeline, task: int) -> Iterator[tuple[int, float]]:
    """Yield the tasks that a task waits for, and the seconds after each one's end."""
    if (before := timeline.previous[task]) >= 0:
        yield before, timeline.gap_s[task]
    if (call := timeline.issue[task]) >= 0:
        yield call, timeline.latency_s
    for other in timeline.after[task]:
        yield other, 0.0


def places_of(timeline: Timeline, kinds: Collection[TaskKind]) -> dict[int, Place]:
    """Return where each task of some kinds runs."""
    found: dict[int, Place] = {}
    graphs = zip(timeline.graphs, timeline.offsets, strict=True)
    for rank, (graph, first) in enumerate(graphs):
        for task, kind in enumerate(graph.kind):
            if kind in kinds:
                device = graph.resources[graph.resource[task]].device
                found[first + task] = (rank, device)
    return found


def meetings(timeline: Timeline) -> dict[int, tuple[int, ...]]:
    """Return the members that each member of a collective starts with."""
    return {m: members for _, members in timeline.stages for m in members}
