"""The pass `overhead`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import attrs
import numpy as np

from perfc.costmodels import HostProfile, load_profile
from perfc.ir import (
    HOST_KINDS,
    AnyKey,
    LaunchGraph,
    PerfcError,
    Program,
    RankClass,
    ResourceKind,
    TaskKind,
)
from perfc.passes.base import Pass, PassContext
from perfc.passes.facts import HOSTED, LAUNCHES, HostedLaunches

DEFAULT_PROFILE = "shared"
"""Profile of a pipeline that has no target to name one."""

_BETWEEN_CALLS = frozenset({"cudaEventRecord", "cudaStreamWaitEvent"})
"""Calls that put no work on a stream: no T5 belongs to them."""


@attrs.frozen
class Overhead(Pass):
    """Put the host's own time between its calls.

    Every op costs T1 first; an op that calls the runtime costs T2 before its
    first call, T5 between two launches and T3 after its last call; an op that
    does not costs T0 (detail `T5`, as in the paper). A bare synchronisation is
    no op of PyTorch: it costs T1 and its call. Calls take their T4.

    A rank class that is given as a launch graph has its host tasks already:
    they keep the seconds they state, and calls that state none take the
    profile's.

    Attributes:
        profile: Name or path of a host profile; empty for the target's.

    Raises:
        UsageError: the profile is unknown.
        PerfcError: a given host task states no seconds.

    """

    name: ClassVar[str] = "overhead"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({LAUNCHES})
    provides: ClassVar[frozenset[AnyKey]] = frozenset({HOSTED})

    profile: str = ""

    def run(self, program: Program, ctx: PassContext) -> None:
        """Give every host task a duration, making those that are missing."""
        profile = load_profile(self.profile or _default_profile(ctx))
        launches = ctx.get(LAUNCHES, program)
        hosted = (
            _hosted(rank, graph, profile)
            for rank, graph in zip(program.classes, launches, strict=True)
        )
        ctx.set(HOSTED, program, tuple(hosted))


def _default_profile(ctx: PassContext) -> str:
    return DEFAULT_PROFILE if ctx.system is None else ctx.system.host.overheads


def _hosted(
    rank: RankClass, graph: LaunchGraph, profile: HostProfile
) -> HostedLaunches:
    if rank.launches is None:
        return host_launches(graph, profile)
    return _timed(graph, profile)


def host_launches(graph: LaunchGraph, profile: HostProfile) -> HostedLaunches:
    """Put T1 to T5 of *profile* into a launch graph that has no host segments."""
    return _timed(add_overheads(graph, profile), profile)


def _timed(full: LaunchGraph, profile: HostProfile) -> HostedLaunches:
    return HostedLaunches(
        full,
        np.array(list(_host_seconds(full, profile))),
        profile.sigma_shared,
        profile.sigma_independent,
    )


def _host_seconds(graph: LaunchGraph, profile: HostProfile) -> Iterator[float]:
    calls_s, default_s = profile.calls_s.named_s, profile.calls_s.default_s
    columns = zip(graph.kind, graph.stated_s, graph.detail, strict=True)
    for index, (kind, stated_s, detail) in enumerate(columns):
        if kind not in HOST_KINDS:
            yield math.nan
        elif stated_s == stated_s:  # noqa: PLR0124 - not NaN, in a hot loop
            yield stated_s
        elif kind is not TaskKind.HOST:
            yield calls_s.get(detail, default_s)
        else:
            msg = (
                f"task {index} of {graph}: a host task of a launch graph must state "
                f"its seconds, and this one ({detail or 'without detail'}) does not; "
                "add `seconds = ...`"
            )
            raise PerfcError(msg)


def add_overheads(graph: LaunchGraph, profile: HostProfile) -> LaunchGraph:
    """Return *graph* with T1, T2, T3 and T5 as host tasks that state their time.

    Kernels, resources and ops keep their numbers.
    """
    hosting = _Hosting(graph, profile)
    for op, tasks in enumerate(_tasks_by_op(graph)):
        hosting.add(op, tasks)
    return hosting.result


def _tasks_by_op(graph: LaunchGraph) -> Iterator[range]:
    """Yield the tasks of each op; they follow one another."""
    start, column, total = 0, graph.op, len(graph)
    for op in range(len(graph.ops)):
        end = start
        while end < total and column[end] <= op:
            end += 1
        yield range(start, end)
        start = end


@attrs.frozen
class _Times:
    """Seconds of one op name."""

    t2_s: float
    t3_s: float
    t5_s: float
    t0_s: float


@attrs.define(eq=False)
class _Hosting:
    """Copies a launch graph op by op, putting host tasks in."""

    source: LaunchGraph
    profile: HostProfile
    result: LaunchGraph = attrs.field(init=False)
    _moved: list[int] = attrs.field(factory=list[int], init=False)
    _thread: int = attrs.field(init=False)
    _times: dict[str, _Times] = attrs.field(factory=dict[str, _Times], init=False)

    def __attrs_post_init__(self) -> None:
        source = self.source
        self.result = LaunchGraph(source.name)
        self.result.resources.extend(source.resources)
        self.result.ops.extend(source.ops)
        for kernel in source.kernels:
            self.result.intern(kernel)
        self._thread = next(
            i for i, r in enumerate(source.resources) if r.kind is ResourceKind.THREAD
        )

    def add(self, op: int, tasks: range) -> None:
        """Add one op: its host segments, its calls and its device tasks."""
        kinds = self.source.kind
        times = self._times_of(self.source.ops[op].name)
        hosts = [task for task in tasks if kinds[task] in HOST_KINDS]
        if hosts:
            self._thread = self.source.resource[hosts[0]]
        self._segment(op, "T1", self.profile.t1_s)
        if not hosts:
            self._segment(op, "T5", times.t0_s)
            for task in tasks:
                self._copy(task)
            return
        bare = all(kinds[task] is TaskKind.SYNC for task in hosts)
        launched = False
        for task in tasks:
            is_launch = self._is_launch(task)
            if task == hosts[0] and not bare:
                self._segment(op, "T2", times.t2_s)
            elif is_launch and launched:
                self._segment(op, "T5", times.t5_s)
            launched = launched or is_launch
            self._copy(task)
        if not bare:
            self._segment(op, "T3", times.t3_s)

    def _is_launch(self, task: int) -> bool:
        if self.source.kind[task] is not TaskKind.CALL:
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
        self.result.task(
            TaskKind.HOST, self._thread, op=op, detail=detail, stated_s=seconds
        )

    def _copy(self, task: int) -> None:
        source, moved = self.source, self._moved
        issue = source.issue[task]
        after = source.after[task]
        moved.append(
            self.result.task(
                source.kind[task],
                source.resource[task],
                op=source.op[task],
                kernel=source.kernel[task],
                issue=issue if issue == -1 else moved[issue],
                after=tuple([moved[t] for t in after]) if after else after,
                detail=source.detail[task],
                group=source.group[task],
                stated_s=source.stated_s[task],
            )
        )
