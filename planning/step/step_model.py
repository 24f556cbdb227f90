"""A step as the few tasks that plans change, and what lies between them.

A schedule of one rank is a graph of a thousand tasks, most of which no plan changes.
Of those that some plan changes, and of the collectives, where ranks meet, this keeps
for each pair the longest way from the end of the one to the start of the other through
tasks that stay as they are. The step is then the longest way through tens of tasks,
for many plans and ranks at once, and exactly that of the schedule for the durations
that are put in (longest paths in a max-plus algebra: Baccelli et al., 1992).
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats
from perfc.passes import Timeline
from perfc.passes.timing import arrivals


@attrs.frozen(eq=False)
class Stop:
    """One of the tasks that are kept.

    Attributes:
        duration_s: What it takes in the schedule.
        meets: Whether all ranks start it together.
        lags_s: The longest ways to its start: from the start of the step, then from
            the end of each stop before it; -inf where there is none.

    """

    duration_s: float
    meets: bool
    lags_s: tuple[float, ...]


@attrs.frozen(eq=False)
class StepModel:
    """The stops of a step, in an order that respects the ways.

    Attributes:
        stops: The stops.
        lags_s: The longest ways to the end of the step: from its start, then from the
            end of each stop.

    """

    stops: tuple[Stop, ...]
    lags_s: tuple[float, ...]

    def step_s(self, durations_s: Sequence[Floats]) -> Floats:
        """Return the time of steps.

        Args:
            durations_s: What each stop takes, [plans, ranks]; an axis is 1 where all
                are alike.

        Returns:
            Shape [plans].

        """
        ends: list[Floats] = [np.zeros((1, 1))]
        for stop, duration_s in zip(self.stops, durations_s, strict=True):
            start_s = _longest(ends, stop.lags_s)
            if stop.meets:
                start_s = start_s.max(axis=-1, keepdims=True)
            ends.append(start_s + duration_s)
        found: Floats = _longest(ends, self.lags_s).max(axis=-1)
        return found


def _longest(ends: Sequence[Floats], lags_s: Sequence[float]) -> Floats:
    """Return the latest of *ends*, each with what follows it; at least the first."""
    found: Floats = ends[0] + max(lags_s[0], 0.0)
    for end, lag_s in zip(ends[1:], lags_s[1:], strict=True):
        if lag_s != -np.inf:
            found = np.maximum(found, end + lag_s)
    return found


def reduce_timeline(
    timeline: Timeline,
    duration_s: Sequence[float],
    stops: Sequence[int],
    meetings: frozenset[int],
) -> StepModel:
    """Keep some tasks of a schedule, and the longest ways between them.

    Args:
        timeline: Who waits for whom, of one rank class.
        duration_s: Seconds of each task.
        stops: The tasks to keep, in the order in which the timeline is solved.
        meetings: Those of them at which all ranks meet.

    """
    count = len(stops)
    number = {task: n for n, task in enumerate(stops)}
    ends = np.full((len(timeline) + 1, count + 1), -np.inf)
    ends[:, 0] = 0.0
    found: list[Stop] = []
    for tasks, group in timeline.stages:
        for task in (*tasks, *group):
            start = arrivals(timeline, ends, task)
            if task not in number:
                ends[task] = start + duration_s[task]
                continue
            own = number[task]
            lags = tuple(float(lag) for lag in start[: own + 1])
            found.append(Stop(duration_s[task], task in meetings, lags))
            ends[task, 0] = -np.inf
            ends[task, own + 1] = 0.0
    last = ends[:-1].max(axis=0, initial=-np.inf)
    return StepModel(tuple(_pruned(found)), tuple(float(lag) for lag in last))


def _pruned(stops: Sequence[Stop]) -> list[Stop]:
    """Drop ways that are never longer than one through another stop.

    A way from stop i to k is none if i to j to k is as long even where j takes no time.
    """
    made: list[Stop] = []
    for number, stop in enumerate(stops):
        lags = list(stop.lags_s)
        for before in range(number + 1):
            by = (
                stops[via].lags_s[before] + lags[via + 1]
                for via in range(before, number)
            )
            if before and max(by, default=-np.inf) >= lags[before]:
                lags[before] = -np.inf
        made.append(attrs.evolve(stop, lags_s=tuple(lags)))
    return made
