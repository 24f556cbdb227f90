"""The rules of time where what runs side by side shares a device and its links.

A task alone takes its share of a device's SMs, of its memory, its links and its NICs.
Where tasks together want more of one than there is, nobody gets more than what is left
when those that want less have theirs (max-min fairness: Bertsekas and Gallager, Data
Networks, 1992, section 6.5.2), and a task goes as fast as the scarcest lets it. Blocks
of collectives hold their SMs from beginning to end; kernels share the others.

Blocks are never taken off an SM, and those of the kernel that came first are placed
first. So a collective waits for the kernels that run when it comes. On a stream of high
priority its blocks are placed as soon as any ends, which is at once; and while a kernel
of such a stream runs, the others get no SMs. (In traces of four V100 without priorities
61 collectives met a kernel of many waves: all waited, for at least 89 % of the time
that was left until its last wave.)

Durations and waits are all that changes, so that what is found in a schedule holds as
it does without.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import attrs

from perfc.ir import TaskKind
from perfc.passes.timing.contention import Place, edges, meetings, places_of
from perfc.passes.timing.timeline import Stage, Timeline

_MOST_HELD = 0.5
"""Share of the SMs that collectives hold at most: there is always room for kernels."""


@attrs.frozen
class Demand:
    """Shares of each resource that a task takes when it runs alone, 0 to 1.

    Attributes:
        computes: Of the SMs that collectives leave.
        held: Of all SMs, which are nobody else's as long as it runs.
        memory: Of the rate of device memory.
        link: Of the links in a node.
        network: Of the NICs.
        beside: How many times as long it takes beside kernels for another reason.
        urgent: Whether its stream has a high priority.

    """

    computes: float = 0.0
    held: float = 0.0
    memory: float = 0.0
    link: float = 0.0
    network: float = 0.0
    beside: float = 1.0
    urgent: bool = False


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
    """Return how many times as long each of some tasks takes beside the others.

    Infinite for a kernel that waits for others of high priority.
    """
    # The hardware's block scheduler serves streams of high priority first: while such a
    # kernel has blocks left, no block of another kernel is placed.
    preferred = any(demand.urgent and demand.computes > 0 for demand in running)
    stands = [preferred and d.computes > 0 and not d.urgent for d in running]
    # A kernel that stands still moves no bytes and leaves its bandwidth to the others.
    moving = [d for d, still in zip(running, stands, strict=True) if not still]
    held = min(sum(demand.held for demand in moving), _MOST_HELD)
    # `beside` was measured next to kernels and says nothing of collectives alone.
    computing = any(demand.computes > 0 for demand in moving)
    levels = {
        "computes": fair_level((d.computes for d in moving), 1.0 - held),
        "memory": fair_level(d.memory for d in moving),
        "link": fair_level(d.link for d in moving),
        "network": fair_level(d.network for d in moving),
    }
    # The resources are used at the same time, so the scarcest one sets the pace and the
    # ratios do not multiply; 1 is the floor, as no task is faster than alone.
    return [
        math.inf
        if still
        else max(
            1.0, *(getattr(demand, name) / level for name, level in levels.items())
        )
        * (demand.beside if computing else 1.0)
        for demand, still in zip(running, stands, strict=True)
    ]


@attrs.frozen
class Shared:
    """Starts, durations and waits of tasks that share a device.

    Attributes:
        start_s: When every task starts.
        taken_s: Seconds of every task beside the others.
        waits: Kernels that a collective waits for to find room.

    """

    start_s: list[float]
    taken_s: list[float]
    waits: Mapping[int, tuple[int, ...]]


def share(
    timeline: Timeline, duration_s: Sequence[float], demands: Mapping[int, Demand]
) -> Shared:
    """Return seconds and waits of tasks where those with demands share their device.

    With these, `solve` finds the schedule (`with_waits`). Members of a collective go on
    at the pace of the slowest of them.

    Args:
        timeline: Who waits for whom.
        duration_s: Seconds of each task alone.
        demands: What kernels and collectives take; others take nothing.

    """
    sharing = _Sharing(timeline, duration_s, demands)
    sharing.run()
    return Shared(sharing.start_s, sharing.taken_s, sharing.waits)


def with_waits(timeline: Timeline, shared: Shared) -> Timeline:
    """Return a timeline in which collectives wait for room as they do in *shared*.

    Tasks are solved in the order of their starts, since a kernel that runs when a
    collective comes may have been issued after it.
    """
    if not shared.waits:
        return timeline
    after = [(*own, *shared.waits.get(t, ())) for t, own in enumerate(timeline.after)]
    units = [
        unit
        for tasks, group in timeline.stages
        for unit in (*((task,) for task in tasks), group)
        if unit
    ]
    units.sort(key=lambda unit: shared.start_s[unit[0]])
    stages: list[Stage] = []
    for together, some in groupby(units, key=lambda unit: len(unit) > 1):
        if together:
            stages += [((), group) for group in some]
        else:
            stages.append(([task for (task,) in some], ()))
    return attrs.evolve(timeline, after=after, stages=stages)


@attrs.define(eq=False)
class _Job:
    """A running kernel, or all members of a running collective.

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
_NONE = Demand()


@attrs.define(eq=False)
class _Sharing:
    """Starts and ends tasks in the order of time.

    Attributes:
        timeline: Who waits for whom.
        duration_s: Seconds of each task alone.
        demands: Of kernels and collectives.
        start_s: When each starts.
        taken_s: Seconds of each beside the others.
        waits: Kernels that members of collectives wait for.

    """

    timeline: Timeline
    duration_s: Sequence[float]
    demands: Mapping[int, Demand]
    start_s: list[float] = attrs.field(init=False)
    taken_s: list[float] = attrs.field(init=False)
    waits: dict[int, tuple[int, ...]] = attrs.field(
        factory=dict[int, tuple[int, ...]], init=False
    )
    _end_s: list[float] = attrs.field(init=False)
    _open: list[int] = attrs.field(init=False)
    _followers: list[list[int]] = attrs.field(init=False)
    _places: dict[int, Place] = attrs.field(init=False)
    _meetings: dict[int, tuple[int, ...]] = attrs.field(init=False)
    _events: list[tuple[float, int, int, int]] = attrs.field(init=False)
    """Events: time, kind, task, and version of the task's job."""
    _jobs: dict[int, _Job] = attrs.field(factory=dict[int, _Job], init=False)
    """Jobs by member."""
    _running: dict[Place, list[int]] = attrs.field(
        factory=dict["Place", "list[int]"], init=False
    )
    """Tasks with demands."""
    _waiting: dict[tuple[int, ...], set[int]] = attrs.field(
        factory=dict[tuple[int, ...], set[int]], init=False
    )
    """Kernels that collectives wait for, by the members."""

    def run(self) -> None:
        """Run every task."""
        self._prepare()
        missing = {members: len(members) for members in self._meetings.values()}
        while self._events:
            now_s, what, task, version = heapq.heappop(self._events)
            if what == _END:
                # An event cannot be removed from the middle of a heap. When the pace of
                # a job changes, its old end stays there and is skipped by its version.
                job = self._jobs.get(task)
                if job is not None and job.version == version:
                    self._finish(job, now_s)
                continue
            members = self._meetings.get(task, (task,))
            self.start_s[task] = now_s
            # A member that waits for others only polls, so it has no demand until the
            # last one has arrived.
            if len(members) > 1:
                missing[members] -= 1
                if missing[members]:
                    continue
                # Members that take less than others end, and are followed, earlier.
                now_s = max(self.start_s[member] for member in members)
            if not self._waits(members, now_s):
                self._start(members, now_s)

    def _prepare(self) -> None:
        """Count what each task waits for, and list who waits for it."""
        timeline, count = self.timeline, len(self.timeline)
        self.taken_s, self._end_s = [*self.duration_s], [0.0] * count
        self.start_s = [0.0] * count
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

    def _waits(self, members: tuple[int, ...], now_s: float) -> bool:
        """Let a collective wait if kernels that came first run where it would."""
        found: set[int] = set()
        for member in members:
            demand = self.demands.get(member)
            # Only a task that holds SMs needs room for blocks, and urgent ones get it.
            if demand is not None and demand.held > 0 and not demand.urgent:
                kernels = sorted(self._kernels(self._places[member], now_s))
                if kernels:  # kept by member: `with_waits` makes edges of them
                    self.waits[member] = tuple(kernels)
                    found.update(kernels)
        if found:
            self._waiting[members] = found
        return bool(found)

    def _kernels(self, place: Place, now_s: float) -> Iterator[int]:
        """Yield kernels that run, or follow another one on their stream right now.

        From one kernel to the next a stream gets sooner than an event to another one.
        """
        for task in self._running.get(place, ()):
            if self._computes(task):
                yield task
        for at_s, what, task, _ in self._events:
            soon = what == _START and at_s - now_s <= self.timeline.gap_s[task]
            if soon and self._places.get(task) == place and self._computes(task):
                yield task

    def _computes(self, task: int) -> bool:
        return self.duration_s[task] > 0 and self.demands.get(task, _NONE).computes > 0

    def _start(self, members: tuple[int, ...], now_s: float) -> None:
        for member in members:
            self.start_s[member] = now_s
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
        # Members advance in lockstep, so that one factor stretches all of them.
        stretch = (now_s - job.start_s) / alone_s
        for member in job.tasks:
            del self._jobs[member]
            if member in self.demands:
                self._running[self._places[member]].remove(member)
        # All members have left `_running` before a follower can start, which would
        # share the device with them otherwise.
        for member in job.tasks:
            self.taken_s[member] = self.duration_s[member] * stretch
            self._end(member, job.start_s + self.taken_s[member])
        # The blocks that waited longest are placed first, so collectives that waited
        # for room start now, while the kernels that follow are still events in the
        # heap.
        # Start the collectives that have waited for these alone.
        for members, kernels in [*self._waiting.items()]:
            kernels.difference_update(job.tasks)
            if not kernels:
                del self._waiting[members]
                self._start(members, now_s)
        self._rate(job, now_s)

    def _rate(self, changed: _Job, now_s: float) -> None:
        """Set the pace of the jobs that share a device with *changed* anew."""
        # A collective has one pace on all its ranks, but the tasks beside its remote
        # members keep theirs: shares depend on what runs, not on how fast it runs.
        places = {self._places[t] for t in changed.tasks if t in self._places}
        jobs = {
            self._jobs[task].tasks: self._jobs[task]
            for place in places
            for task in self._running.get(place, ())
        }
        for job in jobs.values():
            # How many times as long a job takes: its slowest member decides.
            slow = 1.0
            for member in job.tasks:
                if member in self.demands:
                    beside = self._running[self._places[member]]
                    all_slow = slowdowns([self.demands[task] for task in beside])
                    slow = max(slow, all_slow[beside.index(member)])
            # A new job (version 0) has no end event yet and needs one at any pace.
            if slow == job.slow and job.version:
                continue
            # The time since the last change passed at the old pace: it is subtracted
            # before the new pace is set.
            job.left_s -= (now_s - job.since_s) / job.slow
            job.since_s, job.slow = now_s, slow
            job.version += 1
            # A kernel that stands still gets its end when the urgent one has finished.
            if slow < math.inf:
                end_s = now_s + max(job.left_s, 0.0) * slow
                heapq.heappush(self._events, (end_s, _END, job.tasks[0], job.version))

    def _end(self, task: int, end_s: float) -> None:
        """End a task, and schedule those for which it was the last to wait for."""
        self._end_s[task] = end_s
        for other in self._followers[task]:
            self._open[other] -= 1
            if not self._open[other]:
                at_s = max(
                    self._end_s[before] + lag_s
                    for before, lag_s in edges(self.timeline, other)
                )
                heapq.heappush(self._events, (at_s, _START, other, 0))
