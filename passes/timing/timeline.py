"""The rules of time of `perfc.ir.LaunchGraph`, solved in one sweep.

`link` turns the launch graphs of all rank classes into columns of predecessors
over flat task numbers (class after class, each in table order); with a duration
for every task, `solve` finds when each starts and ends, and `latest_ends` how late
it may end. All are linear in tasks and edges.

What the rules leave open is fixed here:

- a kernel, copy or collective leaves the target's stream gap after the task
  right before it on its stream if that one is busy too, or its graph gap if one
  call issued both; a record or a wait in between takes the place of the gap;
- on a synchronous device (a CPU) a kernel runs inside its call: the next task of
  the thread waits for what the call issued;
- where several predecessors decide a start at once, the one on the same resource
  is the cause, then the issuing call, then the first of `after`;
- members of a collective that wait for the last one have the last one's cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import Target
from perfc.ir import AnnotationKey, LaunchGraph, PerfcError, Program
from perfc.ir.launch import BUSY_KINDS
from perfc.ir.support import brief
from perfc.passes.columns import integers
from perfc.passes.facts import HostedLaunches
from perfc.passes.timing.task_kinds import task_mask

T = TypeVar("T")
Stage: TypeAlias = tuple[Sequence[int], tuple[int, ...]]
"""Tasks to solve one by one, then tasks that start together; either may be empty."""


class ScheduleError(PerfcError):
    """A launch graph has no schedule: a duration is missing, or it deadlocks."""


@attrs.frozen(eq=False)
class Timeline:
    """Predecessors of all tasks, by flat task number.

    A predecessor of -1 is none.

    Attributes:
        graphs: Launch graph of each rank class.
        offsets: Flat number of the first task of each class.
        previous: The task before on the same resource.
        gap_s: Seconds to leave between `previous` and the task.
        issue: The call that enqueued the task.
        latency_s: Seconds from the end of `issue` to the task.
        after: Other tasks to wait for.
        stages: All tasks, each once, in an order that respects the edges.

    """

    __repr__ = brief

    graphs: tuple[LaunchGraph, ...]
    offsets: tuple[int, ...]
    previous: list[int]
    gap_s: list[float]
    issue: list[int]
    latency_s: float
    after: list[tuple[int, ...]]
    stages: list[Stage]

    def __len__(self) -> int:
        return len(self.previous)


TIMELINE: AnnotationKey[Timeline] = AnnotationKey("time.edges", Program)
"""The edges that `stream-schedule` solved, for those who solve them again."""


@attrs.frozen
class TimeConstants:
    """Constants of a target that the edges depend on.

    Attributes:
        stream_gap_s: Seconds between two tasks of a busy stream.
        graph_gap_s: Seconds between them where one call issued both.
        launch_latency_s: Seconds from the end of a call to what it issued.
        synchronous: Whether a call returns only when its kernel is done.

    """

    stream_gap_s: float
    graph_gap_s: float
    launch_latency_s: float
    synchronous: bool = False


_Edges: TypeAlias = dict[TimeConstants, Timeline]
_LINKED: WeakKeyDictionary[LaunchGraph, _Edges] = WeakKeyDictionary()
"""Edges by structure and constants: kernels do not matter."""

_MOST_CONSTANTS = 8
"""Constants remembered per structure."""


def link(hosted: Sequence[HostedLaunches], target: Target) -> Timeline:
    """Turn the launch graphs of all rank classes into predecessor columns.

    Args:
        hosted: Launch graph of each rank class.
        target: Gives the gaps and the launch latency.

    """
    graphs = tuple(launches.graph for launches in hosted)
    device = target.device
    constants = TimeConstants(
        device.stream_gap_s,
        device.graph_gap_s,
        target.runtime.launch_latency_s,
        device.synchronous,
    )
    if len(graphs) == 1 and graphs[0].complete:
        linked = _LINKED.setdefault(graphs[0].structure, {})
        if constants not in linked:
            if len(linked) >= _MOST_CONSTANTS:
                linked.clear()
            # Without its graph, which would keep the key alive.
            linked[constants] = attrs.evolve(link_graphs(graphs, constants), graphs=())
        return attrs.evolve(linked[constants], graphs=graphs)
    return link_graphs(graphs, constants)


def link_graphs(graphs: tuple[LaunchGraph, ...], constants: TimeConstants) -> Timeline:
    """Turn launch graphs into predecessor columns, with constants of one's own."""
    ends = list(accumulate(map(len, graphs)))
    offsets = (0, *ends[:-1]) if graphs else ()
    previous: list[int] = []
    gaps: list[float] = []
    afters: list[list[tuple[int, ...]]] = []
    for graph, offset in zip(graphs, offsets, strict=True):
        # Each task's predecessor on its resource, -1 for none.
        before = np.full(len(graph), -1, dtype=np.intp)
        resource = integers(graph.resource)
        if len(graph.resources) <= np.iinfo(np.uint16).max:
            resource = resource.astype(np.uint16)  # sorted by radix, in linear time
        order = np.argsort(resource, kind="stable")
        first, second = order[:-1], order[1:]
        same = resource[first] == resource[second]
        before[second[same]] = first[same]
        after = _after_issued(graph, before) if constants.synchronous else graph.after
        afters.append(_moved(after, offset))
        previous += np.where(before < 0, -1, before + offset).tolist()
        # The gap after the predecessor of each task: where both are busy.
        busy = task_mask(graph, BUSY_KINDS)
        after_busy = busy & (before >= 0) & busy[before]
        issue = integers(graph.issue)
        of_one_call = (issue >= 0) & (issue == issue[before])
        which = np.where(after_busy, np.where(of_one_call, 2, 1), 0)
        gaps_s = (0.0, constants.stream_gap_s, constants.graph_gap_s)
        # The same three numbers again and again, not as many as there are tasks.
        gaps += [*map(gaps_s.__getitem__, which.tolist())]
    timeline = Timeline(
        graphs,
        offsets,
        previous,
        gaps,
        _joined([_shifted(g.issue, o) for g, o in zip(graphs, offsets, strict=True)]),
        constants.launch_latency_s,
        _joined(afters),
        [],
    )
    timeline.stages.extend(_stages(timeline))
    return timeline


def _after_issued(
    graph: LaunchGraph, before: NDArray[np.intp]
) -> list[tuple[int, ...]]:
    """Add to `after` what the call before each task on its thread has issued."""
    issued: dict[int, list[int]] = {}
    for task, call in enumerate(graph.issue):
        if call >= 0:
            issued.setdefault(call, []).append(task)
    return [
        (*after, *(t for t in issued.get(previous, ()) if t < task))
        for task, (after, previous) in enumerate(
            zip(graph.after, before.tolist(), strict=True)
        )
    ]


def _joined(columns: Sequence[list[T]]) -> list[T]:
    """Return the columns one after the other; a single one is not copied."""
    if len(columns) == 1:
        return columns[0]
    return [item for column in columns for item in column]


def _shifted(tasks: list[int], offset: int) -> list[int]:
    return [t + offset if t >= 0 else -1 for t in tasks] if offset else tasks


def _moved(column: list[tuple[int, ...]], offset: int) -> list[tuple[int, ...]]:
    if not offset:
        return column
    return [tuple(t + offset for t in tasks) if tasks else () for tasks in column]


def _stages(timeline: Timeline) -> list[Stage]:
    if not any(map(any, [graph.group for graph in timeline.graphs])):
        return [(range(len(timeline)), ())]
    members: dict[str, list[int]] = {}
    for graph, offset in zip(timeline.graphs, timeline.offsets, strict=True):
        for task, name in enumerate(graph.group, offset):
            if name:
                members.setdefault(name, []).append(task)
    groups = {name: tuple(m) for name, m in members.items() if len(m) > 1}
    if not groups:
        return [(range(len(timeline)), ())]
    stages = _class_by_class(timeline, groups)
    return _by_demand(timeline, groups) if stages is None else stages


def _class_by_class(
    timeline: Timeline, groups: dict[str, tuple[int, ...]]
) -> list[Stage] | None:
    """Walk the classes in table order, each up to the next group it must wait for.

    Return None if they get stuck. That need not be a deadlock: two collectives in
    opposite order on different streams are none.
    """
    limits = [*timeline.offsets[1:], len(timeline)]
    names = {member: name for name in groups for member in groups[name]}
    stops = [
        iter([(task, names[task]) for task in range(low, high) if task in names])
        for low, high in zip(timeline.offsets, limits, strict=True)
    ]
    position = list(timeline.offsets)
    arrived: dict[str, list[int]] = {name: [] for name in groups}
    ready = list(range(len(limits)))
    stages: list[Stage] = []
    done = 0
    # A class stops once per member, so this is linear in tasks and keeps runs of tasks
    # as ranges, whereas `_by_demand` has to visit every edge.
    while ready:
        index = ready.pop()
        stop, name = next(stops[index], (limits[index], ""))
        stages.append((range(position[index], stop), ()))
        position[index] = stop + 1
        if not name:
            done += 1
            continue
        # Later tasks may depend on the collective, so the class pauses until all
        # arrive.
        arrived[name].append(index)
        if len(arrived[name]) == len(groups[name]):
            stages.append(((), groups[name]))
            ready += arrived[name]
    return stages if done == len(limits) else None


def _by_demand(timeline: Timeline, groups: dict[str, tuple[int, ...]]) -> list[Stage]:
    """Order tasks depth first, groups as one node, each after what it waits for."""
    group_of = {m: members for members in groups.values() for m in members}
    state = bytearray(len(timeline))  # 0 new, 1 being ordered, 2 ordered
    order: list[int] = []
    stages: list[Stage] = []
    for root in range(len(timeline)):
        stack = [group_of.get(root, (root,))[0]]
        # An explicit stack: the tasks of a stream form a chain that is longer than
        # Python's recursion limit.
        while stack:
            node = stack[-1]
            if state[node] == 0:
                state[node] = 1
                for p in _waits_for(timeline, group_of.get(node, (node,))):
                    first = group_of.get(p, (p,))[0]
                    # A node in state 1 is an ancestor on the stack: this is a cycle.
                    if state[first] == 1:
                        raise ScheduleError(_deadlock(groups, stack, state, first))
                    if state[first] == 0:
                        stack.append(first)
                continue
            stack.pop()
            # A node is pushed by everyone that waits for it; only one visit may count.
            if state[node] == 1:
                state[node] = 2
                if node in group_of:
                    stages.append((order, group_of[node]))
                    order = []
                else:
                    order.append(node)
    stages.append((order, ()))
    return stages


def _waits_for(timeline: Timeline, members: tuple[int, ...]) -> Iterator[int]:
    for member in members:
        for p in (timeline.previous[member], timeline.issue[member]):
            if p >= 0:
                yield p
        yield from timeline.after[member]


def _deadlock(
    groups: dict[str, tuple[int, ...]], stack: list[int], state: bytearray, first: int
) -> str:
    """Name the groups on the cycle, which runs from *first* to the stack's end."""
    # A node can lie deeper in the stack too, put there but not yet taken up.
    begin = len(stack) - 1 - stack[::-1].index(first)
    circle = {node for node in stack[begin:] if state[node] == 1}
    names = sorted(name for name in groups if groups[name][0] in circle)
    if len(names) == 1:
        return (
            f"collective {names[0]!r} waits for itself: one of its tasks cannot start "
            "before another one ends; give every collective its own group"
        )
    return (
        f"collectives {', '.join(map(repr, names))} wait for each other; "
        "issue them in the same order on every rank"
    )


def solve(
    timeline: Timeline, duration_s: Sequence[float]
) -> tuple[list[float], list[float], list[int]]:
    """Return start, end and cause of every task when each starts as soon as it can.

    Args:
        timeline: Who waits for whom.
        duration_s: Seconds of each task.

    """
    previous, gap_s, issue = timeline.previous, timeline.gap_s, timeline.issue
    latency_s, after = timeline.latency_s, timeline.after
    start = [0.0] * len(timeline)
    cause = [-1] * len(timeline)
    end = [0.0] * (len(timeline) + 1)  # -1, no predecessor, finds the 0 at the end
    for tasks, group in timeline.stages:
        # The body is `arrival`, written out: a call would double the time.
        for i in tasks:
            c = previous[i]
            s = end[c]
            if gap_s[i]:  # a start is mostly an end, one number for both
                s += gap_s[i]
            q = issue[i]
            if q >= 0:
                t = end[q] + latency_s
                if t > s:  # strictly: a tie goes to the task on the same resource
                    s, c = t, q
            if after[i]:
                for j in after[i]:
                    if end[j] > s:
                        s, c = end[j], j
            start[i] = s
            end[i] = s + duration_s[i]
            cause[i] = c
        if group:
            arrivals = [arrival(timeline, end, i) for i in group]
            last, c_last = max(arrivals, key=_first)
            for i, (s, c) in zip(group, arrivals, strict=True):
                start[i] = last
                end[i] = last + duration_s[i]
                # The critical path continues from whoever came last, on any rank.
                cause[i] = c if s == last else c_last
    end.pop()
    return start, end, cause


def finish_s(timeline: Timeline, duration_s: Sequence[float]) -> float:
    """Return when the last task ends, as `solve` has it; 0 where there is none.

    Args:
        timeline: Who waits for whom.
        duration_s: Seconds of each task.

    """
    previous, gap_s, issue = timeline.previous, timeline.gap_s, timeline.issue
    latency_s, after = timeline.latency_s, timeline.after
    end = [0.0] * (len(timeline) + 1)
    for tasks, group in timeline.stages:
        # The body is `solve` without starts and causes, whose lists take longer.
        for i in tasks:
            s = end[previous[i]]
            if gap_s[i]:
                s += gap_s[i]
            q = issue[i]
            if q >= 0:
                t = end[q] + latency_s
                s = t if t > s else s  # noqa: FURB136 - `max` takes twice as long
            if after[i]:
                s = max(s, *[end[j] for j in after[i]])
            end[i] = s + duration_s[i]
        if group:
            last_s = max(arrival(timeline, end, i)[0] for i in group)
            for i in group:
                end[i] = last_s + duration_s[i]
    return max(end)


def _first(arrival: tuple[float, int]) -> float:
    return arrival[0]


def arrival(timeline: Timeline, end: list[float], i: int) -> tuple[float, int]:
    """Return when task *i* could start on its own, and which task decides that.

    The last of *end* is a 0, for no task.
    """
    c = timeline.previous[i]
    s = end[c] + timeline.gap_s[i]
    q = timeline.issue[i]
    if q >= 0 and end[q] + timeline.latency_s > s:
        s, c = end[q] + timeline.latency_s, q
    for j in timeline.after[i]:
        if end[j] > s:
            s, c = end[j], j
    return s, c


def latest_ends(
    timeline: Timeline, duration_s: Sequence[float], time_s: float
) -> list[float]:
    """Return how late each task may end for all to end by *time_s*.

    Args:
        timeline: Who waits for whom.
        duration_s: Seconds of each task.
        time_s: When the last task must have ended.

    """
    previous, gap_s, issue = timeline.previous, timeline.gap_s, timeline.issue
    latency_s, after = timeline.latency_s, timeline.after
    late = [time_s] * len(timeline)
    # In reverse order, everything that waits for a task is visited before the task, so
    # that its `late` is final when it is read.
    for tasks, group in reversed(timeline.stages):
        if group:  # members start together: the one that must start first decides
            s = min(late[i] - duration_s[i] for i in group)
            for i in group:
                _hurry(timeline, late, i, s)
        # The body is `_hurry`, written out: a call would double the time.
        for i in reversed(tasks):
            s = late[i] - duration_s[i]
            c = previous[i]
            t = s - gap_s[i]
            if c >= 0 and t < late[c]:
                late[c] = t
            q = issue[i]
            if q >= 0 and s - latency_s < late[q]:
                late[q] = s - latency_s
            if after[i]:
                for j in after[i]:
                    late[j] = min(late[j], s)
    return late


def _hurry(timeline: Timeline, late: list[float], i: int, s: float) -> None:
    """Make what task *i* waits for end early enough to let it start at *s*."""
    for c, lag_s in (
        (timeline.previous[i], timeline.gap_s[i]),
        (timeline.issue[i], timeline.latency_s),
        *((j, 0.0) for j in timeline.after[i]),
    ):
        if c >= 0:
            late[c] = min(late[c], s - lag_s)
