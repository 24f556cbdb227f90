"""How long the steps of a trace take: cut where the host and the device are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise

import attrs

from perfc.ir.launch import BUSY_KINDS, HOST_KINDS
from perfc.ir.support import brief
from perfc.traces import Recorded


@attrs.frozen
class StepTimes:
    """An iteration, measured and simulated, microseconds.

    Attributes:
        name: As `ProfilerStep#7`.
        number: Its number.
        measured_us: How long it took.
        simulated_us: The same, simulated.
        began_us: When it began, as simulated.

    """

    name: str
    number: int
    measured_us: float
    simulated_us: float
    began_us: float

    @property
    def error(self) -> float:
        """Simulated / measured - 1."""
        return relative_error(self.measured_us, self.simulated_us)


@attrs.frozen(eq=False)
class MeasuredStep:
    """An iteration of a trace, as measured.

    Attributes:
        name: As `ProfilerStep#7`.
        number: Its number; -1 of a trace that tells no steps.
        begin_us: When it began.
        end_us: When host and device were done with it.
        tasks: Its tasks, those of the device by the call that issued them.

    """

    __repr__ = brief
    name: str
    number: int
    begin_us: float
    end_us: float
    tasks: Sequence[int]

    @property
    def us(self) -> float:
        """How long it took."""
        return self.end_us - self.begin_us


def measured_steps(recorded: Recorded) -> list[MeasuredStep]:
    """Return the steps of a trace, cut as `step_times` does; all of it if it has none.

    Of several processes, those of the one that the steps are of.
    """
    marks, graph = recorded.steps, recorded.graph
    if not marks:
        end_us = recorded.begin_us + recorded.measured_us
        every = range(len(graph))
        return [MeasuredStep("all", -1, recorded.begin_us, end_us, every)]
    borders = [*(mark.first for mark in marks), marks[-1].last + 1]
    seen_us = [*(mark.start_us for mark in marks), marks[-1].end_us]
    cuts_us = _cuts(recorded, borders, seen_us, recorded.end_us)
    number = [bisect_right(borders, task) - 1 for task in range(len(graph))]
    process = _process(recorded, borders[0])
    tasks: list[list[int]] = [[] for _ in marks]
    for task, issue in enumerate(graph.issue):
        on_host = graph.kind[task] in HOST_KINDS
        host = task if on_host else issue
        if host >= 0 and _process(recorded, host) != process:
            continue
        step = number[task if host < 0 else host]
        if 0 <= step < len(marks):
            tasks[step].append(task)
    return [
        MeasuredStep(mark.name, mark.number, begin_us, end_us, own)
        for mark, (begin_us, end_us), own in zip(
            marks, pairwise(cuts_us), tasks, strict=True
        )
    ]


def relative_error(measured_us: float, simulated_us: float) -> float:
    """Return simulated / measured - 1; 0 where nothing was measured."""
    return simulated_us / measured_us - 1 if measured_us else 0.0


def step_times(
    recorded: Recorded,
    start_us: Sequence[float],
    end_us: Sequence[float],
    numbers: Collection[int] | None = None,
) -> tuple[StepTimes, ...]:
    """Return how long steps take: from one cut to the next.

    The marks of a trace are the host's, and a host that runs ahead passes them while
    the device works on steps before. So a cut is where both are: the host at its mark,
    and the device done with all that the host's process had issued until then.

    Args:
        recorded: A trace.
        start_us: When each task began, as simulated.
        end_us: When each ended, as simulated.
        numbers: Those of the steps to return; None for all.

    """
    marks = recorded.steps
    if not marks:
        return ()
    tasks = [*(mark.first for mark in marks), marks[-1].last + 1]
    seen_us = [*(mark.start_us for mark in marks), marks[-1].end_us]
    again_us = [*(start_us[mark.first] for mark in marks), end_us[marks[-1].last]]
    measured = pairwise(_cuts(recorded, tasks, seen_us, recorded.end_us))
    simulated = pairwise(_cuts(recorded, tasks, again_us, end_us))
    return tuple(
        StepTimes(mark.name, mark.number, end - start, until - since, since)
        for mark, (start, end), (since, until) in zip(
            marks, measured, simulated, strict=True
        )
        if numbers is None or mark.number in numbers
    )


def _cuts(
    recorded: Recorded,
    tasks: Sequence[int],
    host_us: Sequence[float],
    end_us: Sequence[float],
) -> list[float]:
    """Return when the device is done with what was issued before *tasks*, too."""
    graph = recorded.graph
    process = _process(recorded, tasks[0])
    done_us = [0.0] * (len(graph) + 1)
    for task, kind in enumerate(graph.kind):
        issue = graph.issue[task]
        # Work of a window without a call was issued before all that is in it.
        own = (
            recorded.trace.windowed
            if issue < 0
            else _process(recorded, issue) == process
        )
        if kind in BUSY_KINDS and own:
            done_us[issue + 1] = max(done_us[issue + 1], end_us[task])
    reached_us = list(accumulate(done_us, max))
    return [max(us, reached_us[task]) for task, us in zip(tasks, host_us, strict=True)]


def _process(recorded: Recorded, task: int) -> str:
    """Return the process of a host task: its threads are named `process/thread`."""
    graph = recorded.graph
    return graph.resources[graph.resource[task]].name.split("/")[0]
