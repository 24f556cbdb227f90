"""What decides the time of a step: the slopes of everything that it is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from perfc.ir import Diagnostic, UsageError
from perfc.ir.support import Level
from perfc.passes.timing import LAGS
from perfc.tools.oracle.field_slopes import slopes_of_fields
from perfc.tools.oracle.setting import Setting
from perfc.tools.oracle.solved import GAP_NAME, LATENCY_NAME, Name, Solved
from perfc.tools.oracle.state import State
from perfc.tools.reports import Sensitivity, Slope
from perfc.tools.request import Request
from perfc.tools.run import Run

_TIE = 1e-9
"""Slopes that differ by more are of two paths."""


def sensitivity_of(run: Run, asked: Request) -> Sensitivity:
    """Return the slopes of a run.

    Args:
        run: The run.
        asked: The request that it is of, with its target by name.

    """
    return sensitivity(State(Setting.of(run, asked)))


def sensitivity(state: State) -> Sensitivity:
    """Return the slopes of a step."""
    solved, run = Solved.of(state), state.setting.run
    what = f"{run.model.name} on {run.target.name}, {run.runtime}"
    time_s = solved.ways.time_s
    if not time_s:
        return Sensitivity(what, 0.0, ())
    slopes = [*_parts(solved), *_nodes(solved)]
    remarks: list[Diagnostic] = []
    try:
        slopes += slopes_of_fields(solved)
    except UsageError as error:
        remarks.append(Diagnostic(Level.NOTE, "no-slopes-of-fields", str(error)))
    if state.setting.step.shares:
        message = (
            "tasks slow each other down (contention): slopes hold for as much as they "
            "do now"
        )
        remarks.append(Diagnostic(Level.NOTE, "shared", message))
    slopes.sort(key=lambda slope: (-slope.size, slope.kind, slope.name))
    return Sensitivity(what, time_s * 1e6, tuple(slopes), tuple(remarks))


def _parts(solved: Solved) -> Iterator[Slope]:
    """Yield the slopes of what critical paths are made of: they sum to 1."""
    yield from _labelled(solved, [*solved.names])
    lags = np.zeros((LAGS, 2))
    lags[LAGS - 1, 0] = solved.lag_s[LAGS - 1]
    lags[1:-1, 1] = solved.lag_s[1:-1]
    most, least = solved.ways.spans(np.zeros((len(solved.tasks), 2)), lags)
    names = (LATENCY_NAME, GAP_NAME)
    yield from _slopes(solved, names, most.tolist(), least.tolist())


def _nodes(solved: Solved) -> Iterator[Slope]:
    """Yield the slopes of nodes: of what `Duration` of a node is about."""
    names: list[Name | None] = [None] * len(solved.step.duration_s)
    places = solved.step.places
    for (rank, node), tasks in places.by_node.items():
        graph, first = places.graphs[rank], places.offsets[rank]
        for task in tasks:
            if graph.op[task - first] >= 0:
                names[task] = ("op", node)
    return _labelled(solved, names)


def _labelled(solved: Solved, names: list[Name | None]) -> Iterator[Slope]:
    listed, labels = solved.labelled(names)
    spans = solved.ways.spans_of_labels(labels, solved.own_s, len(listed))
    return _slopes(solved, listed, *(span.tolist() for span in spans))


def _slopes(
    solved: Solved, names: Iterable[Name], most: list[float], least: list[float]
) -> Iterator[Slope]:
    time_s = solved.ways.time_s
    for (kind, name), most_s, least_s in zip(names, most, least, strict=True):
        if most_s:
            slower, faster = most_s / time_s, least_s / time_s
            tied = slower - faster > _TIE
            remark = "another path is as long" if tied else ""
            yield Slope(kind, name, faster, slower, remark)
