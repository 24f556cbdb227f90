"""Segments of a host for a launch graph that differs from another in a few ops."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import HostProfile
from perfc.ir import LaunchGraph, TaskKind
from perfc.ir.launch import BUSY_KINDS, Splice
from perfc.passes.timing.host_segments import HostSegments, Marks, seconds_of

T = TypeVar("T")


@attrs.frozen(eq=False)
class Hosting:
    """What a host does for a launch graph.

    Attributes:
        profile: The host.
        graph: The tasks, those of the host among them.
        host_s: Seconds of each, NaN of what the device does.
        marks: Where ops begin.
        phases: Phase of each op, or nothing.
        nodes: The node of autograd that runs each op, or nothing.

    """

    profile: HostProfile
    graph: LaunchGraph
    host_s: NDArray[np.float64]
    marks: Marks
    phases: Sequence[str]
    nodes: Sequence[str]

    @classmethod
    def of(
        cls,
        graph: LaunchGraph,
        profile: HostProfile,
        phases: Sequence[str],
        nodes: Sequence[str],
    ) -> Hosting:
        """Work out all of it."""
        hosting = HostSegments(graph, profile, phases, nodes)
        hosting.add_all()
        return cls(
            profile, hosting.result(), hosting.host_s(), hosting.marks, phases, nodes
        )

    def spliced(self, graph: LaunchGraph, splice: Splice) -> Hosting | None:
        """Return the host of a graph that has other ops in place of some.

        None where those ops change what comes after them, or it is not known.

        Args:
            graph: The other graph.
            splice: How it differs from the one that this is of.

        """
        base, stop = splice.base.ops, splice.ops.stop
        if stop >= len(base) or any(
            "compiled" in base[o].attributes for o in splice.ops
        ):
            return None
        phases = self._renamed(self.phases, graph, splice)
        nodes = self._renamed(self.nodes, graph, splice)
        ops, marks = range(splice.ops.start, splice.end), self.marks
        if _joined(nodes, ops) or min(marks.place[ops.start], marks.place[stop]) < 0:
            return None
        middle = HostSegments(graph, self.profile, phases, nodes)
        middle.thread, middle.phase = marks.thread[ops.start], marks.phase[ops.start]
        middle.add(ops, splice.tasks.start)
        if (middle.thread, middle.phase) != (marks.thread[stop], marks.phase[stop]):
            return None
        return _Joining(self, graph, splice, middle).hosting()

    def _renamed(
        self, of_ops: Sequence[str], graph: LaunchGraph, splice: Splice
    ) -> Sequence[str]:
        if not of_ops:
            return ()
        known = {splice.base.ops[op].node: of_ops[op] for op in splice.ops}
        own = [known[op.node] for op in graph.ops[splice.ops.start : splice.end]]
        return [*of_ops[: splice.ops.start], *own, *of_ops[splice.ops.stop :]]


def _joined(nodes: Sequence[str], ops: range) -> bool:
    if not nodes:
        return False
    borders = [(at - 1, at) for at in (ops.start, ops.stop) if 0 < at < len(nodes)]
    return any(nodes[one] and nodes[one] == nodes[other] for one, other in borders)


@attrs.frozen(eq=False)
class _Joining:
    """Puts together what comes before, in place of, and after some ops.

    Attributes:
        known: What is known of the other graph.
        graph: The graph.
        splice: How it differs from the other.
        middle: What is in place of ops.

    """

    known: Hosting
    graph: LaunchGraph
    splice: Splice
    middle: HostSegments

    def hosting(self) -> Hosting | None:
        """Return all of it; None where what comes after waits for what is no more."""
        known, splice, order = self.known, self.splice, self.middle.order
        start, stop = self._replaced.start, self._replaced.stop
        shift = start + len(order) - stop
        places = {task: place for place, task in enumerate(order, start)}
        now = self._now(places, shift)
        issues = self._issues(places)
        if now is None or issues is None:
            return None
        made, base = self._columns(), known.graph
        made.issue += base.issue[:start] + issues
        made.issue += [now[task] if task >= 0 else task for task in base.issue[stop:]]
        made.after += base.after[:start] + [()] * len(order)
        made.after += [
            tuple([now[task] for task in after]) if after else after
            for after in base.after[stop:]
        ]
        marks = self.middle.marks
        marks.place = [place + start if place >= 0 else -1 for place in marks.place]
        return Hosting(
            known.profile,
            made,
            np.concatenate(
                (known.host_s[:start], self._seconds(), known.host_s[stop:])
            ),
            known.marks.spliced(splice.ops, marks, shift),
            self.middle.phases,
            self.middle.nodes,
        )

    @property
    def _replaced(self) -> range:
        """Tasks of the other graph that are no more."""
        place, ops = self.known.marks.place, self.splice.ops
        return range(place[ops.start], place[ops.stop])

    def _issues(self, places: Mapping[int, int]) -> list[int] | None:
        """Return the calls that issue what is in the middle, which lie there, too."""
        issues: list[int] = []
        for task in self.middle.order:
            issue = self.graph.issue[task] if task < len(self.graph) else -1
            if issue not in places and issue >= 0:
                return None
            issues.append(places.get(issue, -1))
            if task < len(self.graph) and self.graph.after[task]:
                return None
        return issues

    def _now(self, places: Mapping[int, int], shift: int) -> Sequence[int] | None:
        """Return the number now of each task of the other graph.

        None where one that is no more, and that others wait for, is no device task.
        """
        base, splice, replaced = self.known.graph, self.splice, self._replaced
        hosted = [t for t in replaced if base.kind[t] in BUSY_KINDS]
        plain = [t for t in splice.tasks if splice.base.kind[t] in BUSY_KINDS]
        moved = {
            one: places[splice.moved[other]]
            for one, other in zip(hosted, plain, strict=True)
        }
        later = replaced.stop
        waits = {*base.issue[later:], *[t for a in base.after[later:] if a for t in a]}
        if any(t in replaced and t not in moved for t in waits):
            return None
        return [
            *range(replaced.start),
            *[moved.get(t, -1) for t in replaced],
            *range(later + shift, len(base) + shift),
        ]

    def _seconds(self) -> list[float]:
        """Return the seconds of the tasks in the middle."""
        graph, count, middle = self.graph, len(self.graph), self.middle
        own = [task for task in middle.order if task < count]
        seconds_s = seconds_of(graph, self.known.profile, own)
        known = dict(zip(own, seconds_s, strict=True))
        return [
            known[task] if task < count else middle.seconds[task - count]
            for task in middle.order
        ]

    def _columns(self) -> LaunchGraph:
        """Return the graph, but for who waits for whom."""
        base, graph, middle = self.known.graph, self.graph, self.middle
        kernels, later = self.splice.kernels, self.splice.end - self.splice.ops.stop
        count = len(middle.details)
        made = graph.emptied()
        made.kind += self._joined(base.kind, graph.kind, [TaskKind.HOST] * count)
        made.resource += self._joined(base.resource, graph.resource, middle.threads)
        ops = self._joined(base.op, graph.op, middle.owners)
        behind = self._replaced.start + len(middle.order)
        made.op += ops[:behind] + [op + later for op in ops[behind:]]
        kernel = base.kernel
        if kernels is not None:
            kernel = [kernels[n] if n >= 0 else n for n in kernel]
        made.kernel += self._joined(kernel, graph.kernel, [-1] * count)
        made.detail += self._joined(base.detail, graph.detail, middle.details)
        made.group += self._joined(base.group, graph.group, [""] * count)
        nothing = [math.nan] * count
        made.stated_s += self._joined(base.stated_s, graph.stated_s, nothing)
        return made

    def _joined(self, base: list[T], graph: list[T], segments: list[T]) -> list[T]:
        """Return a column: of the other graph, with the middle in place of a part."""
        count, replaced = len(graph), self._replaced
        own = [
            graph[task] if task < count else segments[task - count]
            for task in self.middle.order
        ]
        return base[: replaced.start] + own + base[replaced.stop :]
