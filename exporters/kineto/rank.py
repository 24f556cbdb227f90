"""One rank of a trace: where its tasks are drawn, and when they run."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from itertools import compress, count
from typing import NamedTuple, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels import Flags
from perfc.ir import LaunchGraph, TaskKind
from perfc.ir.launch import HOST_KINDS, ResourceKind
from perfc.passes import task_mask
from perfc.passes.columns import integers
from perfc.passes.timing import detail_mask
from perfc.tools import Results

_FIRST_HOST_PID = 100_000
"""Processes of GPUs are called by the numbers of the GPUs, hosts from here on."""

_FIRST_CORRELATION = 2**16
"""HolisticTraceAnalysis keeps row numbers in the type that the largest correlation
needs, and fails where a graph launch leaves it too small."""

_FIRST_STREAM = 7
"""What CUPTI calls the default stream of a context."""

CALL_KINDS = frozenset({TaskKind.CALL, TaskKind.SYNC})
"""Kinds that are calls of the runtime."""

BETWEEN_OPS = "T1"
"""The host time that belongs to an op, but is not in it."""


Integers: TypeAlias = NDArray[np.int64]


class Lane(NamedTuple):
    """Place where a viewer draws a resource.

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


class OpSlices(NamedTuple):
    """The time of the host in each op that has a slice, from the end of T1 on.

    Attributes:
        op: Its number.
        resource: Where it runs.
        start_ns: When its first task starts.
        end_ns: When its last task ends.

    """

    op: Integers
    resource: Integers
    start_ns: Integers
    end_ns: Integers


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
        resource: Where each task runs.
        op: What each task belongs to, -1 for none.
        issue: The call that enqueued each task, -1 for none.
        between: Whether a task is the host's time between ops.
        op_first: First host task of each op, from the end of T1 on; -1 where there
            is none, as for an op that is but a runtime call. One more, -1, stands
            for no op.
        op_last: Last host task of each op that has a first.

    """

    number: int
    rank: int
    graph: LaunchGraph
    offset: int
    lanes: Sequence[Lane]
    first_external_id: int
    start_ns: Integers
    end_ns: Integers
    resource: Integers
    op: Integers
    issue: Integers
    between: Flags
    op_first: Integers
    op_last: Integers

    @property
    def host_pid(self) -> int:
        """The process, and the main thread, of its host."""
        return _FIRST_HOST_PID + self.number

    def numbers(self, tasks: Integers) -> list[int]:
        """Return the numbers by which calls, and what they issue, are known."""
        found: list[int] = (_FIRST_CORRELATION + self.offset + tasks).tolist()
        return found

    def correlations(self, tasks: Integers) -> list[str]:
        """Return the `numbers` of tasks as text."""
        return list(map(str, self.numbers(tasks)))

    @functools.cached_property
    def op_names(self) -> Sequence[str]:
        """What each op is called; the last one stands for no op."""
        return _op_names(self.graph)

    @functools.cached_property
    def op_slices(self) -> OpSlices:
        """The ops that have a slice, in order."""
        op = np.flatnonzero(self.op_first >= 0)
        first, last = self.op_first[op], self.op_last[op]
        return OpSlices(
            op, self.resource[first], self.start_ns[first], self.end_ns[last]
        )

    @functools.cached_property
    def external_ids(self) -> Sequence[str]:
        """Arguments of slices up to the op they belong to; the last one is of none."""
        first_id = self.first_external_id
        return [
            f',"args":{{"External id":{number},' if task >= 0 else ',"args":{'
            for number, task in enumerate(self.op_first.tolist(), first_id)
        ]


def rank_traces(results: Results) -> Iterator[RankTrace]:
    """Return the ranks of a schedule; numbers are unique across them."""
    schedule, gpus = results.schedule, count()
    first_id = 1
    for number, hosted in enumerate(results.hosted):
        graph, offset = hosted.graph, schedule.offsets[number]
        own = slice(offset, offset + len(graph))
        end_ns = _nanoseconds(schedule.ends_s[own])
        start_ns = _nanoseconds(schedule.starts_s[own])
        resource = integers(graph.resource)
        op = integers(graph.op)
        between = detail_mask(graph, frozenset({BETWEEN_OPS}))
        yield RankTrace(
            number,
            results.program.classes[number].ranks[0],
            graph,
            offset,
            list(_lanes(graph, _FIRST_HOST_PID + number, gpus)),
            first_id,
            _called(graph, resource, start_ns, end_ns),
            end_ns,
            resource,
            op,
            integers(graph.issue),
            between,
            *_op_tasks(graph, op, between),
        )
        first_id += len(graph.ops)


def _nanoseconds(seconds: NDArray[np.float64]) -> Integers:
    return np.rint(seconds * 1e9).astype(np.int64)


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


def _called(
    graph: LaunchGraph, resource: Integers, start_ns: Integers, end_ns: Integers
) -> Integers:
    """Let every synchronisation start where the task before it ends."""
    waits = task_mask(graph, frozenset({TaskKind.SYNC}))
    called = start_ns.copy()
    for thread in set(resource[waits].tolist()):
        tasks = np.flatnonzero(resource == thread)
        reached_ns = np.concatenate([[0], end_ns[tasks[:-1]]])
        called[tasks] = np.where(waits[tasks], reached_ns, start_ns[tasks])
    return called


def _op_names(graph: LaunchGraph) -> list[str]:
    return [*[op.name for op in graph.ops], ""]


def _op_tasks(
    graph: LaunchGraph, op: Integers, between: Flags
) -> tuple[Integers, Integers]:
    """Return the first and last host task of each op that is more than a call."""
    names = _op_names(graph)
    in_op = task_mask(graph, HOST_KINDS) & (op >= 0) & ~between
    is_call = task_mask(graph, CALL_KINDS)
    called = compress(graph.detail, is_call.tolist())
    owners = map(names.__getitem__, op[is_call].tolist())
    in_op[is_call] &= ~np.array([*map(operator.eq, called, owners)], dtype=np.bool_)
    tasks = np.flatnonzero(in_op)
    first = np.full(len(names), -1)
    last = np.full(len(names), -1)
    first[op[tasks[::-1]]] = tasks[::-1]  # of several, the one assigned last stays
    last[op[tasks]] = tasks
    return first, last
