"""Segments of the host's own time between its calls: T1 to T5 as tasks."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import HostProfile
from perfc.costmodels.sheets import CALLED_SHARE, GRAPH_LAUNCH
from perfc.ir import LaunchGraph, PerfcError, TaskKind
from perfc.ir.launch import HOST_KINDS, ResourceKind
from perfc.ir.location import autograd_call
from perfc.passes.lowering import EVENT_RECORD, PARTS, STREAM_WAIT

T = TypeVar("T")

_BACKWARD = "backward"
"""The phase that runs on a thread of autograd's own."""

_BETWEEN_CALLS = frozenset({EVENT_RECORD, STREAM_WAIT})
"""Calls that put no work on a stream: no T5 belongs to them."""

_BARE_CALLS = frozenset({GRAPH_LAUNCH, STREAM_WAIT})
"""Calls that, if nothing else is called with them, are no op of PyTorch."""


def host_seconds(graph: LaunchGraph, profile: HostProfile) -> list[float]:
    """Seconds of each host task: as stated, else of the profile's call; else NaN.

    The launch of a CUDA graph takes more for each task that it issues.
    """
    return seconds_of(graph, profile, range(len(graph)))


def seconds_of(
    graph: LaunchGraph, profile: HostProfile, tasks: Sequence[int]
) -> list[float]:
    """Return the seconds of some tasks, as `host_seconds` has them."""
    calls_s, default_s = profile.calls_s.named_s, profile.calls_s.default_s
    nodes_s = _graph_nodes_s(graph, profile)
    seconds: list[float] = []
    kinds, stated, details = graph.kind, graph.stated_s, graph.detail
    for index in tasks:
        kind, stated_s, detail = kinds[index], stated[index], details[index]
        if kind not in HOST_KINDS:
            seconds.append(math.nan)
        elif stated_s == stated_s:  # noqa: PLR0124 - not NaN, in a hot loop
            seconds.append(stated_s)
        elif kind is TaskKind.CALL and _joins(graph, index):
            seconds.append(profile.join_s)
        elif kind is not TaskKind.HOST:
            call_s = calls_s.get(detail, default_s)
            seconds.append(call_s + nodes_s[index] if index in nodes_s else call_s)
        else:
            msg = (
                f"task {index} of {graph}: a host task of a launch graph must state "
                f"its seconds, and this one ({detail or 'without detail'}) does not; "
                "add `seconds = ...`"
            )
            raise PerfcError(msg)
    return seconds


def _joins(graph: LaunchGraph, call: int) -> bool:
    """Whether a call launches what joins the parts of the GEMM before it.

    The library does so within its call, some 8 us on the median host (2.0 between both
    launches, in 638 of five traces of ResNet-50 and DLRM on V100 and A100). Whether it
    cuts a sum is known by a rule of thumb, which says no for larger batches: no host
    time hangs on it, lest a larger batch end sooner, but where a profile of one host
    says what that host takes (`join_us`).
    """
    return call + 1 < len(graph) and graph.detail[call + 1] == PARTS


def _graph_nodes_s(graph: LaunchGraph, profile: HostProfile) -> dict[int, float]:
    """Return the seconds that the nodes of a CUDA graph add to its launching call."""
    if GRAPH_LAUNCH not in graph.detail:
        return {}
    calls = {i for i, detail in enumerate(graph.detail) if detail == GRAPH_LAUNCH}
    nodes = Counter(issue for issue in graph.issue if issue in calls)
    return {call: count * profile.graph_node_s for call, count in nodes.items()}


def _border(before: str, phase: str) -> str:
    """Return the key of `BETWEEN` for two phases; "" is before the first one."""
    if not before:
        return "begin"
    if _BACKWARD in (before, phase):
        return "hand_over" if phase == _BACKWARD else "hand_back"
    return "phase"


@attrs.frozen
class _Times:
    """Seconds of one op name."""

    t2_s: float
    t3_s: float
    t5_s: float
    t0_s: float


@attrs.define(eq=False)
class Marks:
    """Places at which ops begin, in the order in which the host runs them.

    Attributes:
        place: Number of the first task of each op in the graph with segments; -1 of one
            that goes on with the one before, as both are one op to the host.
        thread: The thread of the op before.
        phase: The phase of the op before.

    """

    place: list[int] = attrs.field(factory=list[int])
    thread: list[int] = attrs.field(factory=list[int])
    phase: list[str] = attrs.field(factory=list[str])

    def spliced(self, ops: range, others: Marks, shift: int) -> Marks:
        """Return the marks with others in place of some, and those behind moved."""
        start, stop = ops.start, ops.stop
        later = [p + shift if p >= 0 else p for p in self.place[stop:]]
        return Marks(
            self.place[:start] + others.place + later,
            self.thread[:start] + others.thread + self.thread[stop:],
            self.phase[:start] + others.phase + self.phase[stop:],
        )


@attrs.define(eq=False)
class HostSegments:
    """Lists the tasks of the new graph: old ones by number, and host segments.

    The columns of the new graph are gathered at the end, all at once.

    Attributes:
        source: The graph without segments.
        profile: What they take.
        phases: Phase of each op, or nothing: see `host_launches`.
        nodes: The node of autograd that runs each op, or nothing.
        order: Old number of each task; segments are numbered after the old tasks.
        details: `T1` to `T5` of each segment, in order.
        seconds: What each segment takes, in order.
        owners: The op of each segment, in order.
        threads: The thread of each segment, in order.
        marks: Where the ops begin that were added.
        thread: The thread that ops run on.
        phase: The phase of the op that was added last.

    """

    source: LaunchGraph
    profile: HostProfile
    phases: Sequence[str]
    nodes: Sequence[str]
    order: array[int] = attrs.field(factory=lambda: array("q"), init=False)
    details: list[str] = attrs.field(factory=list[str], init=False)
    seconds: list[float] = attrs.field(factory=list[float], init=False)
    owners: list[int] = attrs.field(factory=list[int], init=False)
    threads: list[int] = attrs.field(factory=list[int], init=False)
    marks: Marks = attrs.field(factory=Marks, init=False)
    thread: int = attrs.field(init=False)
    phase: str = attrs.field(default="", init=False)
    _times: dict[str, _Times] = attrs.field(factory=dict[str, _Times], init=False)

    def __attrs_post_init__(self) -> None:
        self.thread = next(
            i
            for i, r in enumerate(self.source.resources)
            if r.kind is ResourceKind.THREAD
        )

    def add_all(self) -> None:
        """Add every op, and what ends an iteration."""
        self.add(range(len(self.source.ops)), 0)
        if self.phases and "end" in self.profile.between_s:
            self._segment(len(self.phases) - 1, "T1", self.profile.between_s["end"])

    def add(self, ops: range, start: int) -> None:
        """Add ops; the tasks of an op follow one another.

        Args:
            ops: The ops.
            start: The first of their tasks.

        """
        total, column, marks = len(self.source), self.source.op, self.marks
        for own in self._calls(ops):
            end = start
            while end < total and column[end] <= own[-1]:
                end += 1
            marks.place += (len(self.order), *[-1] * (len(own) - 1))
            marks.thread += [self.thread] * len(own)
            marks.phase += [self.phase] * len(own)
            self._add(own, start, end)
            start = end

    def _calls(self, ops: range) -> Iterator[range]:
        """Yield the ops that are one to the host: those that a node of autograd runs.

        Ops of compiled graphs stand alone: their Python is not autograd's.
        """
        start, nodes = ops.start, self.nodes
        for op in range(start + 1, ops.stop + 1):
            if (
                not nodes
                or op == ops.stop
                or not nodes[op]
                or nodes[op] != nodes[start]
            ):
                yield range(start, op)
                start = op

    def _t1_s(self, op: int) -> float:
        """Return the seconds before an op: T1, or what the border of a phase takes."""
        phase = self.phases[op] if self.phases else ""
        if not phase or phase == self.phase:
            return self.profile.t1_s
        border = _border(self.phase, phase)
        self.phase = phase
        return self.profile.between_s.get(border, self.profile.t1_s)

    def _add(self, ops: range, start: int, end: int) -> None:
        """Add an op, or those of a node: host segments, calls and device tasks."""
        kinds, op = self.source.kind, ops[0]
        times = self._times_of(self._name(op))
        role = self.source.ops[op].attributes.get("compiled")
        if isinstance(role, str):
            self._compiled(op, times, role, range(start, end))
            return
        if kinds[start:end] == [TaskKind.HOST]:  # it states all that it takes
            self.order.append(start)
            return
        if kinds[start:end] == [TaskKind.CALL, TaskKind.KERNEL]:
            # Add an op of one kernel, which is what most ops are.
            thread = self.thread = self.source.resource[start]
            first = len(self.source) + len(self.details)
            self.order.extend((first, first + 1, start, start + 1, first + 2))
            self.details += ("T1", "T2", "T3")
            self.seconds += (self._t1_s(op), times.t2_s, times.t3_s)
            self.owners += (op, op, op)
            self.threads += (thread, thread, thread)
            return
        hosts = [task for task in range(start, end) if kinds[task] in HOST_KINDS]
        if hosts:
            self.thread = self.source.resource[hosts[0]]
        elif start < end and self.source.issue[start] >= 0:
            self.order.extend(range(start, end))
            return
        self._segment(op, "T1", self._t1_s(op))
        if not hosts:
            self._segment(op, "T5", times.t0_s)
        if not hosts or all(map(self._is_bare, hosts)):
            self.order.extend(range(start, end))
            return
        self._launches(times, range(start, end), hosts[0])
        self._segment(self.source.op[hosts[-1]], "T3", times.t3_s)

    def _name(self, op: int) -> str:
        node = autograd_call(self.nodes[op]) if self.nodes else ""
        return node or self.source.ops[op].name

    def _compiled(self, op: int, times: _Times, role: str, tasks: range) -> None:
        """Add what a compiled graph runs: its own Python takes the place of T1.

        A generated kernel is launched at once; an outside one is an op of ATen, called
        without the composite op around it.
        """
        issued = not tasks or self.source.issue[tasks[0]] < 0
        if not issued:  # by a CUDA graph
            self.order.extend(tasks)
            return
        self._segment(op, "T1", self.profile.compiled_s[role])
        hosts = [task for task in tasks if self.source.kind[task] in HOST_KINDS]
        if role != "call" or not hosts or all(map(self._is_bare, hosts)):
            self.order.extend(tasks)
            return
        share = CALLED_SHARE.get(self._name(op), 1.0)
        called = attrs.evolve(times, t2_s=times.t2_s * share)
        self._launches(called, tasks, hosts[0])
        self._segment(op, "T3", times.t3_s)

    def _launches(self, times: _Times, tasks: range, first: int) -> None:
        """Add T2 before the first call, T5 before each launch but the first."""
        launched = False
        for task in tasks:
            op, is_launch = self.source.op[task], self._is_launch(task)
            if task == first:
                self._segment(op, "T2", times.t2_s)
            elif is_launch and launched:
                self._segment(op, "T5", times.t5_s)
            launched = launched or is_launch
            self.order.append(task)

    def _is_bare(self, task: int) -> bool:
        source = self.source
        return source.kind[task] is TaskKind.SYNC or source.detail[task] in _BARE_CALLS

    def _is_launch(self, task: int) -> bool:
        if self.source.kind[task] is not TaskKind.CALL or _joins(self.source, task):
            return False
        return self.source.detail[task] not in _BETWEEN_CALLS

    def _times_of(self, name: str) -> _Times:
        times = self._times.get(name)
        if times is None:
            tables = (
                self.profile.t2_s,
                self.profile.t3_s,
                self.profile.t5_s,
                self.profile.t0_s,
            )
            times = self._times[name] = _Times(*(t.of(name) for t in tables))
        return times

    def _segment(self, op: int, detail: str, seconds: float) -> None:
        self.order.append(len(self.source) + len(self.details))
        self.details.append(detail)
        self.seconds.append(seconds)
        self.owners.append(op)
        self.threads.append(self.thread)

    def result(self) -> LaunchGraph:
        """Gather the columns: of the old tasks, then of the segments, reordered."""
        source, count = self.source, len(self.details)
        moved = np.full(len(source) + count + 1, -1)  # an issue of -1 stays -1
        moved[np.array(self.order)] = np.arange(len(self.order))
        result = source.emptied()
        result.kind += self._ordered(source.kind, [TaskKind.HOST] * count)
        result.resource += self._ordered(source.resource, self.threads)
        result.op += self._ordered(source.op, self.owners)
        result.kernel += self._ordered(source.kernel, [-1] * count)
        issues = np.fromiter(self._ordered(source.issue, [-1] * count), np.int64)
        result.issue += moved[issues].tolist()
        nothing: list[tuple[int, ...]] = [()] * count
        afters = self._ordered(source.after, nothing)
        result.after += [tuple(moved[list(a)].tolist()) if a else a for a in afters]
        result.detail += self._ordered(source.detail, self.details)
        result.group += self._ordered(source.group, [""] * count)
        result.stated_s += self._ordered(source.stated_s, [math.nan] * count)
        return result

    def host_s(self) -> NDArray[np.float64]:
        """Seconds of each task of the new graph; NaN for device tasks."""
        old_s = host_seconds(self.source, self.profile)
        seconds: NDArray[np.float64] = np.array(old_s + self.seconds)
        return seconds[np.array(self.order, dtype=np.intp)]

    def _ordered(self, tasks: list[T], segments: list[T]) -> Iterator[T]:
        return map([*tasks, *segments].__getitem__, self.order)
