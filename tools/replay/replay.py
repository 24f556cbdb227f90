"""Run a trace again: its launch graph, with host times of one's own choice."""

from __future__ import annotations

import enum
import math
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs

from perfc.costmodels import Device, HostProfile
from perfc.fitting.trace_host import BETWEEN_GAPS, HostTime, host_times
from perfc.ir import PerfcError, TaskKind
from perfc.ir.launch import BUSY_KINDS
from perfc.ir.support import brief, counted
from perfc.passes import Timeline, timing
from perfc.tools.replay.occupancy import TIE_US, Rooms, rooms_of, urgent_kernels
from perfc.tools.replay.step_times import StepTimes, relative_error, step_times
from perfc.traces import Gap, Recorded, covered, joined
from perfc.traces.collectives import align_collectives


class Idle(enum.Enum):
    """Why a device does nothing; the value is the key of a report."""

    HOST = "host"
    LATENCY = "launch_latency"
    OTHER_STREAM = "other_stream"
    OTHER_RANK = "other_rank"
    GAP = "gap"


@attrs.frozen(eq=False)
class Replayed:
    """A trace, run again.

    Attributes:
        recorded: The trace.
        start_us: When each task began, as simulated.
        end_us: When each ended, as simulated.
        steps: The iterations chosen.
        measured_us: All of them, or the whole trace if none is marked.
        simulated_us: The same, simulated.
        gpu_active_us: How long the device worked, as simulated.
        exposed_comm_us: How long collectives ran and nothing else did.
        idle_us: How long the device did nothing, by reason.
        windows_us: From when to when, as simulated, all that is.

    """

    __repr__ = brief

    recorded: Recorded
    start_us: Sequence[float]
    end_us: Sequence[float]
    steps: tuple[StepTimes, ...]
    measured_us: float
    simulated_us: float
    gpu_active_us: float
    exposed_comm_us: float
    idle_us: dict[Idle, float]
    windows_us: tuple[tuple[float, float], ...]

    @property
    def error(self) -> float:
        """Simulated / measured - 1."""
        return relative_error(self.measured_us, self.simulated_us)


KernelSeconds: TypeAlias = Mapping[int, float]
"""Seconds of device tasks in place of the measured ones, by task."""

_AS_MEASURED: KernelSeconds = {}


def replay_alone(  # noqa: PLR0913 - one argument per choice
    traces: Sequence[Recorded],
    host: HostProfile | None = None,
    steps: Collection[int] | None = None,
    kernels: Sequence[KernelSeconds] | None = None,
    *,
    contention: bool = True,
    device: Device | None = None,
) -> list[Replayed]:
    """Schedule each trace on its own: collectives take as long as they took.

    Args:
        traces: Traces, of one run or of several.
        host: Host times to use; None for those of the traces.
        steps: Numbers of the steps to report; None for all.
        kernels: Durations to use instead of measured ones, one mapping a trace.
        contention: Whether kernels wait for those of other streams that leave no room.
        device: What the kernels run on, if not what they ran on; it says how many of
            their blocks there is room for.

    """
    instead = kernels or [_AS_MEASURED] * len(traces)
    each = [*zip(traces, instead, strict=True)]
    return [
        one
        for trace, own in counted(each, "traces replayed")
        for one in _run(
            [trace], host, steps, [own], contention=contention, device=device
        )
    ]


def replay_joint(
    ranks: Sequence[Recorded],
    host: HostProfile | None = None,
    steps: Collection[int] | None = None,
    kernels: Sequence[KernelSeconds] | None = None,
    *,
    contention: bool = True,
) -> list[Replayed]:
    """Schedule the ranks of one run together.

    A collective starts when the last rank is there, and takes what it took on the one
    that waited least.

    Args:
        ranks: The ranks' traces, by one clock (`read_ranks`).
        host: Host times to use; None for those of the traces.
        steps: Numbers of the steps to report; None for all.
        kernels: Durations to use instead of measured ones, one mapping a rank.
        contention: Whether kernels wait for those of other streams that leave no room.

    """
    instead = kernels or [_AS_MEASURED] * len(ranks)
    aligned = align_collectives(ranks).ranks
    return _run(aligned, host, steps, instead, contention=contention)


def _run(  # noqa: PLR0913 - one argument per choice
    ranks: Sequence[Recorded],
    host: HostProfile | None,
    steps: Collection[int] | None,
    kernels: Sequence[KernelSeconds],
    *,
    contention: bool,
    device: Device | None = None,
) -> list[Replayed]:
    graphs = tuple(rank.graph for rank in ranks)
    seconds = [
        own.get(task, s)
        for rank, own in zip(ranks, kernels, strict=True)
        for task, s in enumerate(host_seconds(rank, host))
    ]
    # A timeline has one set of constants. The ranks of a run are on equal machines, so
    # what was measured on each differs by noise only and is averaged.
    constants = timing.TimeConstants(
        stream_gap_s=_mean(rank.stream_gap_us for rank in ranks) * 1e-6,
        graph_gap_s=_mean(rank.graph_gap_us for rank in ranks) * 1e-6,
        launch_latency_s=_mean(rank.launch_latency_us for rank in ranks) * 1e-6,
    )
    timeline = timing.link_graphs(graphs, constants)
    if contention:
        start_s, end_s, cause = _contended(ranks, timeline, seconds, device)
    else:
        start_s, end_s, cause = timing.solve(timeline, seconds)
    found: list[Replayed] = []
    for rank, first in zip(ranks, timeline.offsets, strict=True):
        # The timeline numbers the tasks of all ranks together; reports are per rank.
        mine = slice(first, first + len(rank.graph))
        starts = [s * 1e6 for s in start_s[mine]]
        ends = [s * 1e6 for s in end_s[mine]]
        causes = [_own(c, first, len(rank.graph)) for c in cause[mine]]
        found.append(_replayed(rank, starts, ends, causes, steps))
    return found


def _contended(
    ranks: Sequence[Recorded],
    timeline: Timeline,
    seconds: Sequence[float],
    device: Device | None,
) -> tuple[list[float], list[float], list[int]]:
    """Schedule, with contention where any kernel leaves others no room."""
    rooms: list[Rooms | None] = [rooms_of(rank, device) for rank in ranks]
    if not any(rooms):
        return timing.solve(timeline, seconds)
    urgent = {
        first + task
        for rank, first in zip(ranks, timeline.offsets, strict=True)
        for task in urgent_kernels(rank)
    }

    def full_s(kernel: int, other: int) -> float:
        rank = bisect_right(timeline.offsets, kernel) - 1
        first, own = timeline.offsets[rank], rooms[rank]
        return (
            own.share(kernel - first, other - first) * seconds[kernel] if own else 0.0
        )

    came_s = [us * 1e-6 for rank in ranks for us in rank.start_us]
    competition = timing.Competition(full_s, urgent, came_s, TIE_US * 1e-6)
    return timing.solve_contended(timeline, seconds, competition)


_ELSEWHERE = 1 << 60
"""In place of a cause that is a task of another rank."""


def _own(cause: int, first: int, count: int) -> int:
    """Return a cause as a task of its own rank, -1 for none."""
    if cause < 0:
        return -1
    return cause - first if first <= cause < first + count else _ELSEWHERE


def _mean(values: Iterator[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)


def host_seconds(recorded: Recorded, host: HostProfile | None) -> list[float]:
    """Return the seconds of every task, the host's own as a profile says.

    Stalls, which a profile does not know, stay as measured, and so does how late a
    thread began.
    """
    graph = recorded.graph
    if host is None:
        return graph.stated_s
    seconds = [*graph.stated_s]
    for time in host_times(recorded):
        if time.stall is None:
            seconds[time.task] = profile_seconds(time, host)
    return seconds


def profile_seconds(time: HostTime, host: HostProfile) -> float:
    """Return the seconds of a stretch of the host's time by a profile."""
    if time.kind in ("T4", "sync"):
        return host.calls_s.of(time.name)
    gap = Gap(time.kind)
    if gap in BETWEEN_GAPS:
        return host.between_s.get(BETWEEN_GAPS[gap], host.t1_s)
    tables = {
        Gap.T2: host.t2_s,
        Gap.T3: host.t3_s,
        Gap.T5: host.t5_s,
        Gap.T0: host.t0_s,
    }
    return host.t1_s if gap is Gap.T1 else tables[gap].of(time.name)


def _replayed(
    recorded: Recorded,
    start_us: Sequence[float],
    end_us: Sequence[float],
    cause: Sequence[int],
    steps: Collection[int] | None,
) -> Replayed:
    times = step_times(recorded, start_us, end_us, steps)
    if steps is None:
        begin_us = recorded.begin_us
        end = max(end_us, default=begin_us)
        measured_us, simulated_us = recorded.measured_us, end - begin_us
        windows = [(begin_us, end)]
    elif not times:
        message = (
            f"{recorded.trace.file}: nothing was launched in the steps that are asked "
            "for, on the thread that runs the model"
        )
        raise PerfcError(message)
    else:
        measured_us = math.fsum(step.measured_us for step in times)
        simulated_us = math.fsum(step.simulated_us for step in times)
        windows = joined((s.began_us, s.began_us + s.simulated_us) for s in times)
    own = BUSY_KINDS - {TaskKind.COLLECTIVE}
    active_us = covered(_spans(recorded, start_us, end_us, BUSY_KINDS, windows))
    idle_us = dict.fromkeys(Idle, 0.0)
    for window in windows:
        for why, us in _idle(recorded, start_us, end_us, cause, window).items():
            idle_us[why] += us
    return Replayed(
        recorded,
        start_us,
        end_us,
        times,
        measured_us,
        simulated_us,
        active_us,
        active_us - covered(_spans(recorded, start_us, end_us, own, windows)),
        idle_us,
        tuple(windows),
    )


_Span = tuple[float, float]


def _spans(
    recorded: Recorded,
    start_us: Sequence[float],
    end_us: Sequence[float],
    kinds: Collection[TaskKind],
    windows: Sequence[_Span],
) -> list[_Span]:
    spans = (
        (max(start_us[task], low), min(end_us[task], high))
        for task, kind in enumerate(recorded.graph.kind)
        if kind in kinds
        for low, high in windows
    )
    return [span for span in spans if span[1] > span[0]]


def _idle(
    recorded: Recorded,
    start_us: Sequence[float],
    end_us: Sequence[float],
    cause: Sequence[int],
    window: _Span,
) -> dict[Idle, float]:
    """Return why the device did nothing: what the work after each hole waited for."""
    found = dict.fromkeys(Idle, 0.0)
    graph = recorded.graph
    low, high = window
    reached = low
    order = sorted(
        (t for t, kind in enumerate(graph.kind) if kind in BUSY_KINDS),
        key=start_us.__getitem__,
    )
    for task in order:
        start = min(start_us[task], high)
        # The device is idle only where no stream has work. In the order of starts,
        # `reached` is the latest end so far, and the first task after it ends the hole.
        if start > reached:
            # The task that decided when *task* began, looking through waits.
            before = cause[task]
            while (
                0 <= before < len(cause)
                and recorded.graph.kind[before] is TaskKind.WAIT
            ):
                before = cause[before]
            if not 0 <= before < len(graph):  # a collective: another rank came last
                found[Idle.OTHER_RANK if before >= 0 else Idle.GAP] += start - reached
            elif graph.resource[before] == graph.resource[task]:
                found[Idle.GAP] += start - reached
            elif before == graph.issue[task]:
                # Up to the end of its call the host is late; the rest is the latency of
                # the launch, which a faster host would not save.
                waited = min(max(end_us[before] - reached, 0.0), start - reached)
                found[Idle.HOST] += waited
                found[Idle.LATENCY] += start - reached - waited
            else:
                found[Idle.OTHER_STREAM] += start - reached
        reached = max(reached, min(end_us[task], high))
    # No work follows the last hole, so that only the host can prolong the window.
    found[Idle.HOST] += max(0.0, high - reached)
    return found
