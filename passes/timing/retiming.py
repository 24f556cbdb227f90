"""Exact times of a schedule in which some tasks take less.

`solve` answers for any durations; these answer many questions that differ from one
another in few tasks. Only tasks on the critical path can save time when they take
less: the path keeps its length otherwise.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats, Indices
from perfc.passes.facts import Schedule
from perfc.passes.timing.timeline import Timeline, latest_ends

Change: TypeAlias = Mapping[int, float]
"""Flat task numbers, and what those tasks take instead, in seconds."""


def solve_many(
    timeline: Timeline, duration_s: Sequence[float], changes: Sequence[Change]
) -> list[float]:
    """Return when the last task ends, under each change.

    One sweep over the tasks for all changes together.

    Args:
        timeline: Who waits for whom.
        duration_s: Seconds of each task without a change.
        changes: Changes, each on its own.

    """
    if not changes or not len(timeline):
        return [0.0] * len(changes)
    seconds = np.repeat(np.array(duration_s)[:, None], len(changes), axis=1)
    for number, change in enumerate(changes):
        seconds[list(change), number] = list(change.values())
    end = np.zeros((len(timeline) + 1, len(changes)))  # -1 finds the 0 at the end
    for tasks, group in timeline.stages:
        for i in tasks:
            np.add(arrivals(timeline, end, i), seconds[i], out=end[i])
        if group:
            last = np.max([arrivals(timeline, end, i) for i in group], axis=0)
            for i in group:
                end[i] = last + seconds[i]
    times: list[float] = end.max(axis=0).tolist()
    return times


def arrivals(timeline: Timeline, end: Floats, i: int) -> Floats:
    """Return when task *i* can start, in each of the columns of *end*, (tasks, …)."""
    start: Floats = end[timeline.previous[i]]
    if timeline.gap_s[i]:
        start = start + timeline.gap_s[i]
    issue = timeline.issue[i]
    if issue >= 0:
        start = np.maximum(start, end[issue] + timeline.latency_s)
    for j in timeline.after[i]:
        start = np.maximum(start, end[j])
    return start


@attrs.frozen
class Window:
    """Tasks that follow one another in flat order.

    Attributes:
        first: The first task.
        last: The last task.

    """

    first: int
    last: int


Question: TypeAlias = tuple[Window, Sequence[Change]]
"""A window, and changes of its tasks."""


def times_of_windows(
    timeline: Timeline, schedule: Schedule, questions: Sequence[Question]
) -> list[list[float]]:
    """Return when the last task ends, under each change of each window.

    A change of tasks of one window moves nothing before it. After it, the longest
    way is one that passes by the window, or the longest way out of it: what leads
    there is known from the schedule, what follows from the latest ends. So a
    question costs no more than the tasks of its window.

    Args:
        timeline: Who waits for whom; its tasks are solved in flat order.
        schedule: When they run.
        questions: Windows in ascending order, without overlap.

    """
    if not questions:
        return []
    windows = [window for window, _ in questions]
    # The edges that are not within one window.
    number = np.arange(len(timeline))
    waits = [(j, i) for i, after in enumerate(timeline.after) for j in after]
    waited = np.array(waits, dtype=np.intp).reshape(-1, 2)
    previous, issue = np.array(timeline.previous), np.array(timeline.issue)
    source = np.concatenate([previous, issue, waited[:, 0]])
    target = np.concatenate([number, number, waited[:, 1]])
    latency_s = np.full(len(timeline), timeline.latency_s)
    lag_s = np.concatenate([timeline.gap_s, latency_s, np.zeros(len(waited))])
    begins = np.ones(len(timeline), dtype=np.intp)
    for window in windows:
        begins[window.first + 1 : window.last + 1] = 0
    place = np.cumsum(begins)
    kept = (source >= 0) & (place[source] != place[target])
    edges = _Edges(source[kept], target[kept], lag_s[kept])
    time_s = max(schedule.end_s)
    late_s = np.array(latest_ends(timeline, schedule.duration_s, time_s))
    follows_s = time_s - (late_s - schedule.durations_s)
    out_s = np.zeros(len(timeline))
    np.maximum.at(out_s, edges.source, edges.lag_s + follows_s[edges.target])
    beyond: list[float] = out_s.tolist()
    passing = _passing(schedule, edges, follows_s, windows)
    found: list[list[float]] = []
    for (window, changes), by_s in zip(questions, passing, strict=True):
        ways = (_through(timeline, schedule, window, c, beyond) for c in changes if c)
        longest = (max(by_s, way_s) for way_s in ways)
        found.append([next(longest) if c else time_s for c in changes])
    return found


@attrs.frozen(eq=False)
class _Edges:
    """Who waits for whom, one edge a row.

    Attributes:
        source: The task that has to end first.
        target: The task that waits for it.
        lag_s: Seconds between them.

    """

    source: Indices
    target: Indices
    lag_s: Floats


def _passing(
    schedule: Schedule, edges: _Edges, follows_s: Floats, windows: Sequence[Window]
) -> Iterator[float]:
    """Yield the longest way that passes by each window."""
    end_s = schedule.ends_s
    order = np.argsort(edges.source, kind="stable")
    lengths = end_s[edges.source] + edges.lag_s + follows_s[edges.target]
    columns = (lengths[order], edges.source[order], edges.target[order])
    ways: list[tuple[float, int, int]] = list(
        zip(*(column.tolist() for column in columns), strict=True)
    )
    # A path that ends before the window, or begins after it, has no edge around it, but
    # may be the longest one all the same.
    ended: list[float] = np.maximum.accumulate(np.append(0.0, end_s)).tolist()
    last_first = np.append(follows_s, 0.0)[::-1]
    begun: list[float] = np.maximum.accumulate(last_first)[::-1].tolist()
    heap: list[tuple[float, int]] = []
    edge = 0
    # Edges and windows both ascend, so each edge enters and leaves the heap once: the
    # sweep takes n log n, where scanning all edges for every window would be quadratic.
    for window in windows:
        while edge < len(ways) and ways[edge][1] < window.first:
            length_s, _, target = ways[edge]
            if target > window.last:
                heapq.heappush(heap, (-length_s, target))
            edge += 1
        # Windows ascend, so a path that joins before this one ends is never needed
        # again. Such paths below the top may stay, since only the longest is read.
        while heap and heap[0][1] <= window.last:
            heapq.heappop(heap)
        around_s = -heap[0][0] if heap else 0.0
        yield max(around_s, ended[window.first], begun[window.last + 1])


def _through(
    timeline: Timeline,
    schedule: Schedule,
    window: Window,
    change: Change,
    beyond_s: Sequence[float],
) -> float:
    """Return the longest way that ends within or leads through the window.

    Args:
        timeline: Who waits for whom.
        schedule: When the tasks run without the change.
        window: The window.
        change: The change.
        beyond_s: By task: what follows its end outside of the window.

    """
    known, new, longest_s = schedule.end_s, dict[int, float](), 0.0
    for i in range(window.first, window.last + 1):
        start_s = 0.0
        for c, lag_s in (
            (timeline.previous[i], timeline.gap_s[i]),
            (timeline.issue[i], timeline.latency_s),
            *((j, 0.0) for j in timeline.after[i]),
        ):
            if c >= 0:
                ends_s = new[c] if c in new else known[c]
                start_s = max(start_s, ends_s + lag_s)
        seconds = change[i] if i in change else schedule.duration_s[i]
        new[i] = start_s + seconds
        longest_s = max(longest_s, new[i] + beyond_s[i])
    return longest_s
