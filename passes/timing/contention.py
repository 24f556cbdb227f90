"""The rules of time where kernels of several streams compete for the SMs.

An SM takes a block of another kernel when it has room. While a kernel has blocks left
that do not fit, it leaves none: a kernel of another stream begins when enough of those
of its last wave have ended. So do collectives, whose blocks are large, but they hold
few SMs: nobody waits for them. A kernel of a stream of high priority begins as soon as
any block ends, which is at once. Copies have engines of their own and do not wait.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeAlias

import attrs

from perfc.ir import TaskKind
from perfc.passes.timing.timeline import Timeline


@attrs.frozen
class Competition:
    """Who competes for the SMs, and how it ends.

    Attributes:
        full_s: For how long from its start a kernel leaves another task, a kernel or a
            collective, no room, seconds.
        urgent: Tasks of streams of high priority.
        came_s: When tasks began in a schedule that is run again, if any.
        tie_s: Who came first there does so again, if both come within this time.

    """

    full_s: Callable[[int, int], float]
    urgent: Collection[int] = frozenset()
    came_s: Sequence[float] = ()
    tie_s: float = 0.0


def solve_contended(
    timeline: Timeline, duration_s: Sequence[float], competition: Competition
) -> tuple[list[float], list[float], list[int]]:
    """Return start, end and cause of every task, as `solve`, event by event.

    What a kernel waits for depends on who came first, so there is no order of the
    tasks that holds for other durations.

    Args:
        timeline: Who waits for whom otherwise.
        duration_s: Seconds of each task.
        competition: Who leaves whom no room.

    """
    contest = _Contest(timeline, duration_s, competition)
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
        competition: Who leaves whom no room.
        start_s: When each task starts.
        end_s: When it ends.
        cause: What decided its start, -1 for nothing.

    """

    timeline: Timeline
    duration_s: Sequence[float]
    competition: Competition
    start_s: list[float] = attrs.field(init=False)
    end_s: list[float] = attrs.field(init=False)
    cause: list[int] = attrs.field(init=False)
    _open: list[int] = attrs.field(init=False)
    _followers: list[list[int]] = attrs.field(init=False)
    _ready: list[tuple[float, bool, int, int]] = attrs.field(init=False)
    """Tasks by when they are ready: of those that are so at one time first those that
    compete with nobody, which may make others ready, then in turn."""
    _turn: Iterator[int] = attrs.field(init=False)
    _places: dict[int, Place] = attrs.field(init=False)
    _running: dict[Place, list[int]] = attrs.field(
        factory=lambda: defaultdict["Place", list[int]](list), init=False
    )
    """Kernels that have not ended, by place."""

    def run(self) -> None:
        """Start every task."""
        kernels = places_of(self.timeline, frozenset({TaskKind.KERNEL}))
        sent = places_of(self.timeline, frozenset({TaskKind.COLLECTIVE}))
        self._places = kernels | sent
        self._prepare()
        groups = meetings(self.timeline)
        missing = {members: len(members) for members in groups.values()}
        # Tasks start in the order of time, because whether there is room depends on
        # what started before. No later event can produce an earlier one: durations and
        # lags are not negative.
        while self._ready:
            now_s, _, _, task = heapq.heappop(self._ready)
            if task in self._places and self._waits(task, now_s):
                continue
            if task in kernels:
                self._running[kernels[task]].append(task)
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
        self._ready = []
        self._turn = itertools.count()
        for task in range(count):
            if not self._open[task]:
                self._push(0.0, task)

    def _waits(self, task: int, now_s: float) -> bool:
        """Put a task back if it finds no room, or if another one comes first."""
        place = self._places[task]
        running = [k for k in self._running[place] if self.end_s[k] > now_s]
        self._running[place] = running
        if task in self.competition.urgent:
            return False
        # A kernel that was put back tries again when there is room. Another kernel may
        # have taken that room at the same time; then it is put back once more.
        full_s = self.competition.full_s
        room = [(self.start_s[k] + full_s(k, task), k) for k in running]
        room_s, full = max(room, default=(now_s, -1))
        if room_s > now_s:
            self.cause[task] = full
            self._push(room_s, task)
            return True
        rival_s = self._rival(task, now_s)
        if rival_s is not None:
            self._push(rival_s, task)
        return rival_s is not None

    def _rival(self, task: int, now_s: float) -> float | None:
        """Return when a rival comes that came before *task* where it is known.

        Which of two is a microsecond earlier decides over milliseconds, and no rule of
        time is that exact.
        """
        came_s, full_s = self.competition.came_s, self.competition.full_s
        if not came_s:
            return None
        return min(
            (
                at_s
                for at_s, _, _, other in self._ready
                if at_s <= now_s + self.competition.tie_s
                and came_s[other] < came_s[task]
                and self._places.get(other) == self._places[task]
                and (full_s(other, task) > 0 or full_s(task, other) > 0)
            ),
            default=None,
        )

    def _push(self, at_s: float, task: int) -> None:
        competes = task in self._places
        heapq.heappush(self._ready, (at_s, competes, next(self._turn), task))

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
                self._push(at_s, other)

    def _arrival(self, task: int) -> tuple[float, int]:
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
