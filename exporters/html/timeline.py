"""The timeline of the HTML page: what threads and streams do when, and the path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc import tools
from perfc.exporters.kineto import Lane, RankTrace, rank_traces
from perfc.ir import TaskKind
from perfc.ir.launch import BUSY_KINDS
from perfc.passes import task_mask
from perfc.passes.facts import SEGMENT_KINDS, SegmentKind

_HOST, _WAIT, _COPY, _COMM = "host", "wait", "copy", "communication"
_COLORS = {_HOST: 7, _WAIT: 8, _COPY: 5, _COMM: 3}
_KERNELS = (0, 1, 2, 4, 6)
"""Colours of kernels, most of the time first; those that come later share the last."""

_PATH_KINDS = {
    SegmentKind.HOST: _HOST,
    SegmentKind.LAUNCH: _WAIT,
    SegmentKind.SYNC: _WAIT,
    SegmentKind.COPY: _COPY,
    SegmentKind.COMM: _COMM,
}
"""What the critical path is where it is no kernel; where it is idle, it has no box."""


@attrs.frozen(eq=False)
class _Words:
    """Words by number, in the order in which they were met."""

    known: dict[str, int] = attrs.Factory(dict[str, int])

    def numbers(self, words: Iterable[str]) -> NDArray[np.int64]:
        """Return the number of each word."""
        found = [self.known.setdefault(word, len(self.known)) for word in words]
        return np.array(found, dtype=np.int64)


def timeline(report: tools.Report, of: int = 1) -> tools.Timeline:
    """Return a lane for the critical path, and one per thread and stream of each rank.

    Args:
        report: The report.
        of: How many reports there are on the page.

    """
    results, names, kinds = report.results, _Words(), _Words()
    lanes = [
        tools.TimelineLane("critical path", _path(results, names, kinds), summed=False)
    ]
    ranks = [*rank_traces(results)]
    for rank, lane in ((one, lane) for one in ranks for lane in one.lanes):
        find = _ops if lane.device < 0 else _tasks
        label = lane.label if len(ranks) == 1 else f"rank {rank.rank}, {lane.label}"
        lanes.append(tools.TimelineLane(label, find(results, rank, lane, names, kinds)))
    listed = [*kinds.known]
    return tools.Timeline(
        lanes=lanes,
        names=[*names.known],
        kinds=listed,
        colors=_colors(lanes, listed),
        text=f"What runs when, over {tools.format_us(report.time_us)}.",
        most_bytes=tools.MOST_BYTES // of,
    )


def _path(results: tools.Results, names: _Words, kinds: _Words) -> tools.Slices:
    table = results.path.segment_table
    shown = np.flatnonzero(table.kind != SEGMENT_KINDS.index(SegmentKind.IDLE))
    tasks: list[int] = table.task[shown].tolist()
    numbers: list[int] = table.kind[shown].tolist()
    segments = [SEGMENT_KINDS[number] for number in numbers]
    start_ns = np.rint(table.start_s[shown] * 1e9).astype(np.int64)
    end_s = table.start_s[shown] + table.duration_s[shown]
    return tools.Slices(
        names.numbers(map(results.node_of, tasks)),
        kinds.numbers(
            _PATH_KINDS.get(segment) or results.detail(task)
            for segment, task in zip(segments, tasks, strict=True)
        ),
        start_ns,
        np.rint(end_s * 1e9).astype(np.int64),
    )


def _ops(
    results: tools.Results, rank: RankTrace, lane: Lane, names: _Words, kinds: _Words
) -> tools.Slices:
    """Return the ops that a thread of the host runs."""
    found = rank.op_slices
    own = np.flatnonzero(found.resource == rank.lanes.index(lane))
    ops: list[int] = found.op[own].tolist()
    return tools.Slices(
        names.numbers(results.node_id(rank.number, op) for op in ops),
        kinds.numbers(_HOST for _ in ops),
        found.start_ns[own],
        found.end_ns[own],
    )


def _tasks(
    results: tools.Results, rank: RankTrace, lane: Lane, names: _Words, kinds: _Words
) -> tools.Slices:
    """Return the kernels, copies and collectives of a stream."""
    busy = task_mask(rank.graph, BUSY_KINDS)
    own = np.flatnonzero(busy & (rank.resource == rank.lanes.index(lane)))
    tasks: list[int] = own.tolist()
    flat = [rank.offset + task for task in tasks]
    return tools.Slices(
        names.numbers(map(results.node_of, flat)),
        kinds.numbers(_kind(results, rank, task) for task in tasks),
        rank.start_ns[own],
        rank.end_ns[own],
    )


def _kind(results: tools.Results, rank: RankTrace, task: int) -> str:
    kind = rank.graph.kind[task]
    if kind is TaskKind.COPY:
        return _COPY
    return _COMM if kind is TaskKind.COLLECTIVE else results.detail(rank.offset + task)


def _colors(lanes: Sequence[tools.TimelineLane], kinds: Sequence[str]) -> list[int]:
    """Return the number of the colour of each kind; what takes most has its own."""
    times_ns = np.zeros(len(kinds))
    for lane in lanes[1:]:
        np.add.at(times_ns, lane.slices.kind, lane.slices.end_ns - lane.slices.start_ns)
    found = dict(_COLORS)
    longest: list[int] = np.argsort(-times_ns, kind="stable").tolist()
    for number in longest:
        rank = min(len(found) - len(_COLORS), len(_KERNELS) - 1)
        found.setdefault(kinds[number], _KERNELS[rank])
    return [found[kind] for kind in kinds]
