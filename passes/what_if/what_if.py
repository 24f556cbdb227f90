"""The pass `what-if`."""

from __future__ import annotations

import functools
import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import Estimate, KernelTable, Target, lower_bound
from perfc.ir import AnnotationKey, AnyKey, Kernel, LaunchGraph, Program, TaskKind
from perfc.ir.launch import BUSY_KINDS
from perfc.passes import facts
from perfc.passes.base import Pass, PassContext
from perfc.passes.timing import TIMELINE, Change, Timeline, finish_s
from perfc.passes.what_if.faster_host import host_work
from perfc.passes.what_if.op_times import solve_in_batches, times_of_ops

HALF = 0.5
_ROUNDING = 1e-12
"""A saving below this share of the time is what sums of floats differ by."""

_SITES = 16
"""Sites that are timed together."""

_CALLS = "T4"
"""What runtime calls are called among the host's times."""


@attrs.frozen
class OpSaving:
    """What one op would save; seconds, at least 0.

    Attributes:
        rank: Number of the rank class.
        op: Number of the op in its launch graph.
        twice_s: If its device tasks ran twice as fast.
        bound_s: If its kernels took what their flops and bytes take at the peaks.
        host_twice_s: If the host was twice as fast in it.

    """

    rank: int
    op: int
    twice_s: float
    bound_s: float
    host_twice_s: float


@attrs.frozen
class SiteSaving:
    """What a set of ops that launch the same kernels would save together.

    Attributes:
        name: What the ops are called.
        ops: Rank class and number of each.
        twice_s: If their device tasks ran twice as fast.
        bound_s: If their kernels took what their flops and bytes take at the peaks.
        seconds: What their device tasks take, summed.
        least_s: What they would take at the peaks, summed.

    """

    name: str
    ops: tuple[tuple[int, int], ...]
    twice_s: float
    bound_s: float
    seconds: float
    least_s: float

    @property
    def reachable_s(self) -> float:
        """Twice as fast, but no faster than the bound."""
        return min(self.twice_s, self.bound_s)


@attrs.frozen
class HostSaving:
    """What a class of host times would save; seconds, at least 0.

    Attributes:
        detail: `T1` to `T5`, or `all`.
        twice_s: If they were half as long.
        free_s: If they took no time.

    """

    detail: str
    twice_s: float
    free_s: float


@attrs.frozen(eq=False)
class Savings:
    """Answers, worked out when they are asked for.

    Attributes:
        time_s: The time as it is.
        find_ops: Works out `ops`.
        find_sites: Works out `sites`.
        find_host: Works out `host`.

    """

    time_s: float
    find_ops: Callable[[], Sequence[OpSaving]] = attrs.field(repr=False)
    find_sites: Callable[[], Sequence[SiteSaving]] = attrs.field(repr=False)
    find_host: Callable[[], Sequence[HostSaving]] = attrs.field(repr=False)

    @functools.cached_property
    def ops(self) -> Sequence[OpSaving]:
        """Every op that saves anything, in order."""
        return self.find_ops()

    @functools.cached_property
    def sites(self) -> Sequence[SiteSaving]:
        """The sites that save most, best first; those that save nothing are absent."""
        return self.find_sites()

    @functools.cached_property
    def host(self) -> Sequence[HostSaving]:
        """The classes of host times that save anything, best first."""
        return self.find_host()


WHAT_IF: AnnotationKey[Savings] = AnnotationKey("time.what_if", Program)
"""What would save how much time."""


@attrs.frozen
class WhatIf(Pass):
    """Find what saves how much: ops, sites of equal ops, classes of host times.

    Every answer is exact for the rules of time: the schedule with other durations
    of those tasks, so what hides behind something else saves nothing. Durations
    that the source states have no bound; synchronisations are not made faster.

    Attributes:
        sites: How many sites to find.

    """

    name: ClassVar[str] = "what-if"
    requires: ClassVar[frozenset[AnyKey]] = frozenset(
        {facts.SCHEDULE, TIMELINE, facts.HOSTED, facts.CRITICAL_PATH, facts.KERNEL_COST}
    )
    provides: ClassVar[frozenset[AnyKey]] = frozenset({WHAT_IF})

    sites: int = 10

    def run(self, program: Program, ctx: PassContext) -> None:
        """Prepare the answers."""
        asker = _Asker(
            ctx.get(TIMELINE, program),
            ctx.get(facts.SCHEDULE, program),
            ctx.get(facts.HOSTED, program),
            ctx.get(facts.CRITICAL_PATH, program),
            ctx.get(facts.KERNEL_COST, program),
            ctx.target,
        )
        find_sites = functools.partial(asker.site_savings, self.sites)
        savings = Savings(
            asker.path.time_s, asker.op_savings, find_sites, asker.host_savings
        )
        ctx.set(WHAT_IF, program, savings)


@attrs.frozen
class _Site:
    """Ops of one name that launch the same kernels: rank class and number of each."""

    name: str
    ops: tuple[tuple[int, int], ...]


@attrs.frozen(eq=False)
class _Asker:
    """Asks what the timeline takes under changes."""

    timeline: Timeline
    schedule: facts.Schedule
    hosted: tuple[facts.HostedLaunches, ...]
    path: facts.Path
    costs: tuple[Estimate, ...]
    target: Target

    def op_savings(self) -> list[OpSaving]:
        """Time every op that is on the critical path."""
        asked: list[tuple[int, int, list[int]]] = [
            (rank, op, tasks)
            for rank, by_op in enumerate(self.tasks)
            for op, tasks in by_op.items()
            if not self.on_path.isdisjoint(tasks)
        ]
        changes: list[list[Change]] = []
        for _, _, tasks in asked:
            three = (self.twice(tasks), self.at_bound(tasks), self.host(tasks, HALF))
            changes.append([c if self._shorter_s(c) else {} for c in three])
        of_ops = [tasks for _, _, tasks in asked]
        questions = list(zip(of_ops, changes, strict=True))
        times = times_of_ops(self.timeline, self.schedule, questions)
        found = [
            OpSaving(rank, op, *map(self._saved_s, times_s))
            for (rank, op, _), times_s in zip(asked, times, strict=True)
        ]
        return [s for s in found if s.twice_s or s.bound_s or s.host_twice_s]

    def site_savings(self, most: int) -> list[SiteSaving]:
        """Time sites in the order of what they could save, till no other can.

        A site saves no more than its tasks on the critical path get shorter.
        """
        candidates: list[tuple[float, _Site, Change, Change]] = []
        for site in self._sites():
            tasks = [t for rank, op in site.ops for t in self.tasks[rank][op]]
            twice, bound = self.twice(tasks), self.at_bound(tasks)
            could_s = min(self._shorter_s(twice), self._shorter_s(bound))
            if self._shorter_s(twice) or self._shorter_s(bound):
                candidates.append((could_s, site, twice, bound))
        candidates.sort(key=lambda item: -item[0])
        found: list[SiteSaving] = []
        for start in range(0, len(candidates), _SITES):
            batch = candidates[start : start + _SITES]
            if len(found) >= most and found[most - 1].reachable_s >= batch[0][0]:
                break
            times = solve_in_batches(
                self.timeline, self.schedule, [c for _, _, *two in batch for c in two]
            )
            saved_s = list(map(self._saved_s, times))
            pairs = zip(batch, saved_s[::2], saved_s[1::2], strict=True)
            found += [
                self._site_saving(site, twice, bound, twice_s, bound_s)
                for (_, site, twice, bound), twice_s, bound_s in pairs
                if twice_s or bound_s
            ]
            found.sort(key=lambda site: (-site.reachable_s, -site.twice_s, site.ops))
        return found[:most]

    def _site_saving(
        self, site: _Site, twice: Change, bound: Change, twice_s: float, bound_s: float
    ) -> SiteSaving:
        seconds = math.fsum(map(self._seconds, twice))
        least_s = math.fsum(bound.get(task, self._seconds(task)) for task in twice)
        return SiteSaving(site.name, site.ops, twice_s, bound_s, seconds, least_s)

    def host_savings(self) -> list[HostSaving]:
        """Time the classes of host times, and all of them together."""
        tasks = self._host_tasks.tolist()
        details = list(chain.from_iterable(graph.detail for graph in self.graphs))
        classes: defaultdict[str, list[int]] = defaultdict(list)
        for task in tasks:
            is_call = self._kinds[task] is TaskKind.CALL
            classes[_CALLS if is_call else details[task] or "other"].append(task)
        if tasks:
            classes["all"] = tasks
        found: list[HostSaving] = []
        for name in sorted(classes):  # one by one: each is as long as the timeline
            twice_s, none_s = (
                self._saved_s(self._time_s(classes[name], share))
                for share in (HALF, 0.0)
            )
            if twice_s or none_s:
                found.append(HostSaving(name, twice_s, none_s))
        return sorted(found, key=lambda saving: (-saving.twice_s, saving.detail))

    def _time_s(self, tasks: Sequence[int], share: float) -> float:
        seconds = self.schedule.durations_s.copy()
        seconds[np.array(tasks)] *= share
        return finish_s(self.timeline, array("d", seconds.tobytes()))

    def twice(self, tasks: Sequence[int]) -> Change:
        """Run device tasks twice as fast."""
        return {t: self._seconds(t) * HALF for t in tasks if t in self._busy}

    def at_bound(self, tasks: Sequence[int]) -> Change:
        """Run kernels at their bound."""
        return {t: self.bound_s[t] for t in tasks if t in self.bound_s}

    def host(self, tasks: Sequence[int], share: float) -> Change:
        """Let the host's own tasks take a share of their time."""
        return {t: self._seconds(t) * share for t in tasks if t in self._host_work}

    def _seconds(self, task: int) -> float:
        return self.schedule.duration_s[task]

    def _saved_s(self, time_s: float) -> float:
        saved_s = self.path.time_s - time_s
        return saved_s if saved_s > _ROUNDING * self.path.time_s else 0.0

    def _shorter_s(self, change: Change) -> float:
        return math.fsum(
            self._seconds(t) - s for t, s in change.items() if t in self.on_path
        )

    @property
    def graphs(self) -> Sequence[LaunchGraph]:
        """Launch graph of each rank class."""
        return [hosted.graph for hosted in self.hosted]

    @functools.cached_property
    def on_path(self) -> frozenset[int]:
        """The tasks of the critical path."""
        return frozenset(self.path.tasks)

    @functools.cached_property
    def tasks(self) -> Sequence[Mapping[int, list[int]]]:
        """Flat numbers of the tasks by rank class and op, in order of the first."""
        found: list[dict[int, list[int]]] = []
        for graph, offset in zip(self.graphs, self.schedule.offsets, strict=True):
            by_op: dict[int, list[int]] = {}
            for task, op in enumerate(graph.op, offset):
                if op >= 0:
                    by_op.setdefault(op, []).append(task)
            found.append(by_op)
        return found

    @functools.cached_property
    def bound_s(self) -> Mapping[int, float]:
        """The bound of each task that has a price and no stated duration."""
        found: dict[int, float] = {}
        offsets = self.schedule.offsets
        for graph, cost, offset in zip(self.graphs, self.costs, offsets, strict=True):
            table = KernelTable(graph.kernels)
            bounds_s = lower_bound(table, self.target, cost.model).tolist()
            columns = zip(graph.kernel, graph.stated_s, strict=True)
            for task, (kernel, stated_s) in enumerate(columns, offset):
                if kernel >= 0 and math.isnan(stated_s):
                    found[task] = min(bounds_s[kernel], self._seconds(task))
        return found

    @functools.cached_property
    def _kinds(self) -> Sequence[TaskKind]:
        return list(chain.from_iterable(graph.kind for graph in self.graphs))

    @functools.cached_property
    def _host_tasks(self) -> NDArray[np.intp]:
        return np.flatnonzero(np.concatenate([host_work(g) for g in self.graphs]))

    @functools.cached_property
    def _host_work(self) -> frozenset[int]:
        return frozenset(self._host_tasks.tolist())

    @functools.cached_property
    def _busy(self) -> frozenset[int]:
        return frozenset(t for t, k in enumerate(self._kinds) if k in BUSY_KINDS)

    def _sites(self) -> Iterator[_Site]:
        """Yield the ops that launch something, those of equal launches together."""
        found: dict[tuple[str, tuple[Kernel | None, ...]], list[tuple[int, int]]] = {}
        for rank, (graph, by_op) in enumerate(
            zip(self.graphs, self.tasks, strict=True)
        ):
            offset = self.schedule.offsets[rank]
            for op, tasks in by_op.items():
                numbers = [graph.kernel[t - offset] for t in tasks if t in self._busy]
                kernels = [graph.kernels[k] if k >= 0 else None for k in numbers]
                key = (graph.ops[op].name, tuple(kernels))
                if kernels:
                    found.setdefault(key, []).append((rank, op))
        for (name, _), ops in found.items():
            yield _Site(name, tuple(ops))
