"""One rank of a trace: where its tasks are drawn, and when they run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

import attrs
import numpy as np

from perfc.ir import HOST_KINDS, LaunchGraph, ResourceKind, TaskKind
from perfc.tools import Results

_FIRST_HOST_PID = 100_000
"""Processes of GPUs are called by the numbers of the GPUs, hosts from here on."""

_FIRST_CORRELATION = 2**16
"""HolisticTraceAnalysis keeps row numbers in the type that the largest correlation
needs, and fails where a graph launch leaves it too small."""

_FIRST_STREAM = 7
"""What CUPTI calls the default stream of a context."""

BETWEEN_OPS = "T1"
"""The host time that belongs to an op, but is not in it."""


class Lane(NamedTuple):
    """Where a viewer draws a resource.

    Attributes:
        pid: Process: the host, or the GPU.
        tid: Thread, or stream.
        label: What it is called.
        device: Number of the GPU; -1 for a thread.

    """

    pid: int
    tid: int
    label: str
    device: int


class Span(NamedTuple):
    """A slice on a lane, in nanoseconds."""

    lane: Lane
    start_ns: int
    end_ns: int


@attrs.frozen(eq=False)
class RankTrace:
    """A rank class, as its first rank would have recorded it.

    Times are whole nanoseconds: rounded starts and ends still nest and still meet,
    rounded durations would not.

    Attributes:
        number: Number of the rank class.
        rank: The rank.
        graph: Its launch graph.
        offset: Flat number of its first task.
        lanes: Where each resource is drawn.
        first_external_id: `External id` of its first op; the others follow.
        start_ns: When each task starts. A synchronisation starts when the host
            calls it, as a profiler sees it; in the schedule, when it need not
            wait any more.
        end_ns: When each task ends.
        op_spans: The time of the host in each op, from the end of T1 on.

    """

    number: int
    rank: int
    graph: LaunchGraph
    offset: int
    lanes: Sequence[Lane]
    first_external_id: int
    start_ns: Sequence[int]
    end_ns: Sequence[int]
    op_spans: Mapping[int, Span]

    @property
    def host_pid(self) -> int:
        """The process, and the main thread, of its host."""
        return _FIRST_HOST_PID + self.number

    @property
    def first_correlation(self) -> int:
        """Correlation of its first task, if it is a call; the others follow."""
        return _FIRST_CORRELATION + self.offset


def rank_traces(results: Results) -> Iterator[RankTrace]:
    """Return the ranks of a schedule; numbers are unique across them."""
    schedule, gpus = results.schedule, count()
    first_id = 1
    for number, hosted in enumerate(results.hosted):
        graph, offset = hosted.graph, schedule.offsets[number]
        own = slice(offset, offset + len(graph))
        lanes = list(_lanes(graph, _FIRST_HOST_PID + number, gpus))
        end_ns = _nanoseconds(schedule.end_s[own])
        start_ns = _called(graph, _nanoseconds(schedule.start_s[own]), end_ns)
        yield RankTrace(
            number,
            results.program.classes[number].ranks[0],
            graph,
            offset,
            lanes,
            first_id,
            start_ns,
            end_ns,
            _op_spans(graph, lanes, start_ns, end_ns),
        )
        first_id += len(graph.ops)


def _nanoseconds(seconds: Sequence[float]) -> list[int]:
    rounded = np.rint(np.array(seconds, dtype=np.float64) * 1e9)
    nanoseconds: list[int] = rounded.astype(np.int64).tolist()
    return nanoseconds


def _lanes(graph: LaunchGraph, host_pid: int, gpus: Iterator[int]) -> Iterator[Lane]:
    pids: dict[int, int] = {}
    threads, streams = count(host_pid), count(_FIRST_STREAM)
    for resource in graph.resources:
        if resource.kind is ResourceKind.THREAD:
            tid = next(threads)
            yield Lane(host_pid, tid, f"thread {tid} ({resource.name})", -1)
            continue
        device = resource.device
        if device not in pids:
            pids[device] = next(gpus)
        tid = next(streams)
        label = f"stream {tid} ({resource.name})"
        yield Lane(pids[device], tid, label, pids[device])


def _called(graph: LaunchGraph, start_ns: list[int], end_ns: list[int]) -> list[int]:
    """Let every synchronisation start where the task before it ends."""
    reached = [0] * len(graph.resources)
    called = list(start_ns)
    for task, kind in enumerate(graph.kind):
        resource = graph.resource[task]
        if kind is TaskKind.SYNC:
            called[task] = reached[resource]
        reached[resource] = end_ns[task]
    return called


def _op_spans(
    graph: LaunchGraph,
    lanes: Sequence[Lane],
    start_ns: Sequence[int],
    end_ns: Sequence[int],
) -> dict[int, Span]:
    """Return the host's time in each op that is more than a runtime call."""
    spans: dict[int, Span] = {}
    ended_ns: dict[int, int] = {}
    names = [op.name for op in graph.ops]
    columns = zip(graph.kind, graph.op, graph.detail, strict=True)
    for task, (kind, op, detail) in enumerate(columns):
        if op < 0 or kind not in HOST_KINDS or detail in (BETWEEN_OPS, names[op]):
            continue
        if op not in ended_ns:
            spans[op] = Span(lanes[graph.resource[task]], start_ns[task], 0)
        ended_ns[op] = end_ns[task]
    return {
        op: Span(lane, start, ended_ns[op]) for op, (lane, start, _) in spans.items()
    }
