"""The rules of time where what runs side by side shares a device and its links.

A task alone takes its share of a device's SMs, of its memory, its links and its NICs.
Where tasks together want more of one than there is, nobody gets more than what is left
when those that want less have theirs (max-min fairness: Bertsekas and Gallager, Data
Networks, 1992, section 6.5.2), and a task goes as fast as the scarcest lets it. Blocks
of collectives hold their SMs from beginning to end; kernels share the others.

Only durations change, so that all that is found in a schedule holds as it does without.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from perfc.ir import TaskKind
from perfc.passes.contention import Place, edges, meetings, places_of
from perfc.passes.timeline import Timeline

_MOST_HELD = 0.5
"""Of the SMs: there is always room for kernels."""


@attrs.frozen
class Demand:
    """What a task takes when it runs alone, as shares of what there is, 0 to 1.

    Attributes:
        computes: Of the SMs that collectives leave.
        held: Of all SMs, which are nobody else's as long as it runs.
        memory: Of the rate of device memory.
        link: Of the links in a node.
        network: Of the NICs.
        beside: How many times as long it takes beside kernels for another reason.

    """

    computes: float = 0.0
    held: float = 0.0
    memory: float = 0.0
    link: float = 0.0
    network: float = 0.0
    beside: float = 1.0


def fair_level(shares: Iterable[float], capacity: float = 1.0) -> float:
    """Return how much each may have at most for all to get by with *capacity*.

    Infinite where there is enough for all.
    """
    wanted = sorted(share for share in shares if share > 0)
    left = capacity
    for number, share in enumerate(wanted):
        level = left / (len(wanted) - number)
        if share > level:
            return level
        left -= share
    return float("inf")


def slowdowns(running: Sequence[Demand]) -> list[float]:
    """Return how many times as long each of some tasks takes beside the others."""
    held = min(sum(demand.held for demand in running), _MOST_HELD)
    computing = sum(demand.computes > 0 for demand in running)
    levels = {
        "computes": fair_level((d.computes for d in running), 1.0 - held),
        "memory": fair_level(d.memory for d in running),
        "link": fair_level(d.link for d in running),
        "network": fair_level(d.network for d in running),
    }
    return [
        max(1.0, *(getattr(demand, name) / level for name, level in levels.items()))
        * (demand.beside if computing else 1.0)
        for demand in running
    ]


def shared_durations(
    timeline: Timeline, duration_s: Sequence[float], demands: Mapping[int, Demand]
) -> list[float]:
    """Return the seconds of every task where those with demands share their device.

    With these, `solve` finds the schedule. Members of a collective go on at the pace of
    the slowest of them.

    Args:
        timeline: Who waits for whom.
        duration_s: Seconds of each task alone.
        demands: What kernels and collectives take; others take nothing.

    """
    sharing = _Sharing(timeline, duration_s, demands)
    sharing.run()
    return sharing.taken_s


@attrs.define(eq=False)
class _Job:
    """What runs: a kernel, or all members of a collective.

    Attributes:
        tasks: The members.
        left_s: Seconds of work left, as if it were alone.
        start_s: When it started.
        slow: How many times as long it takes now.
        since_s: Since when.
        version: How often it was set anew: events of earlier versions do not count.

    """

    tasks: tuple[int, ...]
    left_s: float
    start_s: float
    slow: float = 1.0
    since_s: float = 0.0
    version: int = 0


_END, _START = 0, 1


@attrs.define(eq=False)
class _Sharing:
    """Starts and ends tasks in the order of time.

    Attributes:
        timeline: Who waits for whom.
        duration_s: Seconds of each task alone.
        demands: Of kernels and collectives.
        taken_s: Seconds of each beside the others.

    """

    timeline: Timeline
    duration_s: Sequence[float]
    demands: Mapping[int, Demand]
    taken_s: list[float] = attrs.field(init=False)
    _end_s: list[float] = attrs.field(init=False)
    _open: list[int] = attrs.field(init=False)
    _followers: list[list[int]] = attrs.field(init=False)
    _places: dict[int, Place] = attrs.field(init=False)
    _meetings: dict[int, tuple[int, ...]] = attrs.field(init=False)
    _events: list[tuple[float, int, int, int]] = attrs.field(init=False)
    """When, what, of which task, of which version of its job."""
    _jobs: dict[int, _Job] = attrs.field(factory=dict[int, _Job], init=False)
    """By first member."""
    _running: dict[Place, list[int]] = attrs.field(
        factory=dict["Place", "list[int]"], init=False
    )
    """Tasks with demands."""

    def run(self) -> None:
        """Run every task."""
        self._prepare()
        missing = {members: len(members) for members in self._meetings.values()}
        while self._events:
            now_s, what, task, version = heapq.heappop(self._events)
            if what == _END:
                job = self._jobs.get(task)
                if job is not None and job.version == version:
                    self._finish(job, now_s)
                continue
            members = self._meetings.get(task, (task,))
            if len(members) > 1:
                missing[members] -= 1
                if missing[members]:
                    continue
            self._start(members, now_s)

    def _prepare(self) -> None:
        """Count what each task waits for, and list who waits for it."""
        timeline, count = self.timeline, len(self.timeline)
        self.taken_s, self._end_s = [*self.duration_s], [0.0] * count
        self._open, self._followers = [0] * count, [[] for _ in range(count)]
        kinds = frozenset({TaskKind.KERNEL, TaskKind.COLLECTIVE})
        self._places = places_of(timeline, kinds)
        self._meetings = meetings(timeline)
        for task in range(count):
            for before, _ in edges(timeline, task):
                self._followers[before].append(task)
                self._open[task] += 1
        # Sorted, and so a heap.
        self._events = [(0.0, _START, t, 0) for t in range(count) if not self._open[t]]

    def _start(self, members: tuple[int, ...], now_s: float) -> None:
        alone_s = max(self.duration_s[member] for member in members)
        if alone_s <= 0 or not any(member in self.demands for member in members):
            for member in members:
                self._end(member, now_s + self.duration_s[member])
            return
        job = _Job(members, alone_s, now_s, since_s=now_s)
        for member in members:
            self._jobs[member] = job
            if member in self.demands:
                self._running.setdefault(self._places[member], []).append(member)
        self._rate(job, now_s)

    def _finish(self, job: _Job, now_s: float) -> None:
        alone_s = max(self.duration_s[member] for member in job.tasks)
        stretch = (now_s - job.start_s) / alone_s
        for member in job.tasks:
            del self._jobs[member]
            if member in self.demands:
                self._running[self._places[member]].remove(member)
        for member in job.tasks:
            self.taken_s[member] = self.duration_s[member] * stretch
            self._end(member, job.start_s + self.taken_s[member])
        self._rate(job, now_s)

    def _rate(self, changed: _Job, now_s: float) -> None:
        """Find anew how fast those go on that run where *changed* starts or ends."""
        places = {self._places[t] for t in changed.tasks if t in self._places}
        jobs = {
            self._jobs[task].tasks: self._jobs[task]
            for place in places
            for task in self._running.get(place, ())
        }
        for job in jobs.values():
            slow = self._slow(job.tasks)
            if slow == job.slow and job.version:
                continue
            job.left_s -= (now_s - job.since_s) / job.slow
            job.since_s, job.slow = now_s, slow
            job.version += 1
            end_s = now_s + max(job.left_s, 0.0) * slow
            heapq.heappush(self._events, (end_s, _END, job.tasks[0], job.version))

    def _slow(self, members: Collection[int]) -> float:
        """Return how many times as long a job takes: its slowest member decides."""
        found = 1.0
        for member in members:
            if member in self.demands:
                beside = self._running[self._places[member]]
                all_slow = slowdowns([self.demands[task] for task in beside])
                found = max(found, all_slow[beside.index(member)])
        return found

    def _end(self, task: int, end_s: float) -> None:
        """Let start who waited for a task alone."""
        self._end_s[task] = end_s
        for other in self._followers[task]:
            self._open[other] -= 1
            if not self._open[other]:
                at_s = max(
                    self._end_s[before] + lag_s
                    for before, lag_s in edges(self.timeline, other)
                )
                heapq.heappush(self._events, (at_s, _START, other, 0))
