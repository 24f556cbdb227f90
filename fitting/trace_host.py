"""What a host pays to launch work, from traces of it: plain means, stalls set apart.

Host times have heavy tails which are part of what an iteration takes: trimmed means and
medians predict 9 to 35 % too little. What can be named as a stall is left out instead:
memory taken from the driver, the data loader, the first use of a library, a first step
that is longer than the others, and DDP's statistics of its first iterations, which wait
for events.
"""

from __future__ import annotations

import enum
import math
import re
import statistics
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import attrs

from perfc.costmodels import HostProfile, PerName
from perfc.ir import TaskKind
from perfc.traces import Gap, Recorded
from perfc.traces.events import LOADER
from perfc.traces.runtime import is_memory, waits_for

_AUTOGRAD = "autograd::engine::evaluate_function: "
_UNNUMBERED = re.compile("[A-Z][A-Za-z0-9]*Backward")
_RENAMED = {"CudnnConvolutionBackward0": "ConvolutionBackward0"}
_EVENT_TIME = "EventElapsedTime"
_GAPS = frozenset(gap.value for gap in Gap)
_LAZY_US = 10_000.0
"""A first call that takes longer, and `_LAZY_TIMES` as long as it usually does, loads
or starts up something."""

_LAZY_TIMES = 20.0
_NO_FLOOR_US = 100.0
"""A wait for nothing takes 2 to 9 us; one that takes longer waited for something."""

_FIRST_STEP = 1.25
_FEWEST_STEPS = 3
_LEAST_SHARED = 0.1
"""Least shared sigma: one host on another day, as for hosts of `perfc measure`."""

_LEAST_INDEPENDENT = 0.01
_MOST = 1.0


class Stall(enum.Enum):
    """Why a host stood still; the value is how a report calls it."""

    ALLOCATOR = "allocator"
    DATA_LOADER = "data loader"
    LAZY = "lazy initialisation"
    FIRST_STEP = "first step"
    STATISTICS = "DDP statistics"
    UNSEEN = "waits for work of before the trace"


BETWEEN_GAPS = {
    Gap.PHASE: "phase",
    Gap.HAND_OVER: "hand_over",
    Gap.HAND_BACK: "hand_back",
    Gap.END: "end",
    Gap.BEGIN: "begin",
}


@attrs.frozen
class HostTime:
    """One stretch of a host's time.

    Attributes:
        kind: `T1` to `T5`, `T0`, `hand-over`, …, `T4` for a launch, `sync` for what a
            wait takes when there is nothing to wait for.
        name: The op, or the call of `T4` and `sync`.
        us: How long.
        task: Its task.
        stall: Why it is no overhead, if it is none.

    """

    kind: str
    name: str
    us: float
    task: int
    stall: Stall | None


@attrs.frozen(eq=False)
class TraceHost:
    """A host as its traces show it.

    Attributes:
        profile: Means.
        times: What they are means of, and the stalls.

    """

    profile: HostProfile
    times: Sequence[HostTime]


def op_name(name: str) -> str:
    """Return the name an op's overheads are known by: autograd's node for backward.

    Until PyTorch 1.10 nodes had no number, and cuDNN's convolution had one of its own.
    """
    node = name.removeprefix(_AUTOGRAD)
    if _UNNUMBERED.fullmatch(node):
        node = f"{node}0"
    return _RENAMED.get(node, node)


def host_times(
    recorded: Recorded, steps: Collection[int] | None = None
) -> list[HostTime]:
    """Return the times of the host, offsets left out, with the stalls named.

    Args:
        recorded: A trace.
        steps: Numbers of the steps to look at; all of the trace if None.

    """
    inside = _within(recorded, steps)
    graph = recorded.graph
    found: list[HostTime] = []
    for task, kind in enumerate(graph.kind):
        if kind in _HOST and graph.detail[task] != Gap.OFFSET.value and inside(task):
            found.append(_time(recorded, task, kind))
    lazy = set(_lazy(found))
    first_us = _first_step(recorded, steps)
    timed = sorted(
        call.start_us for call in recorded.trace.calls if _EVENT_TIME in call.name
    )

    def named(time: HostTime) -> HostTime:
        stall = _stall(recorded, time, first_us, timed)
        if stall is None and time.task in lazy:
            stall = Stall.LAZY
        return time if stall is None else attrs.evolve(time, stall=stall)

    return [named(time) for time in found if time.us > 0]


_HOST = frozenset({TaskKind.HOST, TaskKind.CALL, TaskKind.SYNC})


def _within(recorded: Recorded, steps: Collection[int] | None) -> Callable[[int], bool]:
    if steps is None:
        return lambda _task: True
    chosen = [s for s in recorded.steps if s.number in steps]
    starts = [s.start_us for s in chosen]

    def inside(task: int) -> bool:
        at_us = recorded.start_us[task]
        at = bisect_right(starts, at_us) - 1
        return at >= 0 and at_us < chosen[at].end_us

    return inside


def _time(recorded: Recorded, task: int, kind: TaskKind) -> HostTime:
    graph = recorded.graph
    us = graph.stated_s[task] * 1e6
    if kind is TaskKind.CALL:
        return HostTime("T4", graph.detail[task], us, task, None)
    if kind is TaskKind.SYNC:
        return HostTime("sync", graph.detail[task], us, task, None)
    op = graph.op[task]
    name = op_name(graph.ops[op].name) if op >= 0 else ""
    return HostTime(graph.detail[task], name, us, task, None)


def _lazy(times: Iterable[HostTime]) -> Iterator[int]:
    """Yield first times that are far longer than others of their kind."""
    kinds: dict[tuple[str, str], list[HostTime]] = defaultdict(list)
    for time in times:
        kinds[time.kind, time.name].append(time)
    for found in kinds.values():
        usual = statistics.median(time.us for time in found)
        first = found[0]
        if first.us > max(_LAZY_US, _LAZY_TIMES * usual):
            yield first.task


def _first_step(recorded: Recorded, steps: Collection[int] | None) -> float:
    """Return until when a first step runs that is longer than the others."""
    chosen = [s for s in recorded.steps if steps is None or s.number in steps]
    if len(chosen) < _FEWEST_STEPS:
        return -math.inf
    first, *others = (s.end_us - s.start_us for s in chosen)
    slow = first > _FIRST_STEP * statistics.median(others)
    return chosen[0].end_us if slow else -math.inf


def _stall(
    recorded: Recorded, time: HostTime, first_us: float, timed: Sequence[float]
) -> Stall | None:
    """Return why a time is no overhead.

    Args:
        recorded: The trace.
        time: The time.
        first_us: Until when a slow first step runs.
        timed: When the host asked how long it was between two events.

    """
    op = recorded.graph.op[time.task]
    name = recorded.graph.ops[op].name if op >= 0 else ""
    start_us, end_us = recorded.start_us[time.task], recorded.end_us[time.task]
    at = bisect_left(timed, start_us)
    if time.kind in ("T4", "sync") and is_memory(time.name):
        return Stall.ALLOCATOR
    if time.kind == "T4" and waits_for(time.name) and time.us > _NO_FLOOR_US:
        return Stall.UNSEEN
    if name.startswith(LOADER):
        return Stall.DATA_LOADER
    if time.kind in _GAPS and at < len(timed) and timed[at] < end_us:
        return Stall.STATISTICS
    return Stall.FIRST_STEP if start_us < first_us else None


def fit_trace_host(
    recorded: Sequence[Recorded],
    base: HostProfile,
    steps: Collection[int] | None = None,
    *,
    per_op: bool = True,
) -> TraceHost:
    """Return the means of what the host of some traces did.

    Args:
        recorded: Traces of one host.
        base: What is not seen in them is kept of it.
        steps: Numbers of the steps to learn from; all if None.
        per_op: Whether each op gets its own times, or all ops share one.

    """
    times = [t for one in recorded for t in host_times(one, steps)]
    kinds: dict[str, list[HostTime]] = defaultdict(list)
    for time in times:
        if time.stall is None:
            kinds[time.kind].append(time)

    def table(kind: str, kept: PerName) -> PerName:
        return _per_name(kinds[kind], kept, per_op=per_op)

    calls = _per_name([*kinds["T4"], *kinds["sync"]], base.calls_s, per_op=True)
    calls = PerName(calls.default_s, {**base.calls_s.named_s, **calls.named_s})
    profile = attrs.evolve(
        base,
        t1_s=_mean_s(kinds["T1"], base.t1_s),
        t2_s=table("T2", base.t2_s),
        t3_s=table("T3", base.t3_s),
        t5_s=table("T5", base.t5_s),
        t0_s=table("T0", base.t0_s),
        calls_s=calls,
        between_s={
            name: _mean_s(kinds[gap.value], math.nan)
            for gap, name in BETWEEN_GAPS.items()
            if kinds[gap.value]
        },
        sigma_shared=session_sigma(recorded, steps),
        sigma_scaled=None,  # that is the base's
        sigma_independent=_independent(kinds),
    )
    return TraceHost(profile, times)


def _mean_s(times: Sequence[HostTime], default_s: float) -> float:
    if not times:
        return default_s
    return statistics.fmean(time.us for time in times) * 1e-6


def _per_name(times: Sequence[HostTime], kept: PerName, *, per_op: bool) -> PerName:
    if not times:
        return kept
    names: dict[str, list[HostTime]] = defaultdict(list)
    for time in times:
        names[time.name].append(time)
    own = {name: _mean_s(found, 0.0) for name, found in names.items() if name}
    return PerName(_mean_s(times, 0.0), own if per_op else {})


def _independent(kinds: dict[str, list[HostTime]]) -> float:
    """Return the spread of one host time: of the logarithm, over all kinds."""
    logs = [
        math.log(time.us / mean_us)
        for times in kinds.values()
        for mean_us in [_mean_s(times, 0.0) * 1e6]
        for time in times
    ]
    spread = statistics.pstdev(logs) if logs else _MOST
    return min(max(spread, _LEAST_INDEPENDENT), _MOST)


def session_sigma(
    recorded: Sequence[Recorded], steps: Collection[int] | None = None
) -> float:
    """Return how far the host times of a trace may be off on another day.

    That is how far those of steps, or of traces if there are several, differ from each
    other, stalls left out: a relative standard deviation of 0.1 at least.

    Args:
        recorded: Traces of one host.
        steps: Numbers of the steps to look at; all if None.

    """
    host_us = [_host_us(one, steps) for one in recorded]
    means = [statistics.fmean(found) for found in host_us if found]
    many = means if len(means) > 1 else [us for found in host_us for us in found]
    if len(many) < _FEWEST_STEPS - 1:
        return _LEAST_SHARED
    spread = statistics.pstdev(many) / statistics.fmean(many)
    return min(max(spread, _LEAST_SHARED), _MOST)


def _host_us(recorded: Recorded, steps: Collection[int] | None) -> list[float]:
    """Return the host's own time in each step in which it was not held up, in us."""
    marks = [s for s in recorded.steps if steps is None or s.number in steps]
    starts = [mark.start_us for mark in marks]
    sums = [0.0] * len(marks)
    for time in host_times(recorded, steps):
        at = bisect_right(starts, recorded.start_us[time.task]) - 1
        if at >= 0 and time.stall is None:
            sums[at] += time.us
    return [us for us in sums if us > 0]
