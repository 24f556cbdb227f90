"""The numbers of a report that describe the iteration as a whole."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, TypeAlias

from perfc.costmodels import Target
from perfc.ir import BUSY_KINDS, HOST_KINDS, Kernel, LaunchGraph, TaskKind
from perfc.passes import Segment, SegmentKind
from perfc.tools.results import Results

Json: TypeAlias = dict[str, Any]
US = 1e6
_ON_DEVICE = frozenset({SegmentKind.KERNEL, SegmentKind.COPY, SegmentKind.IDLE})


def totals(results: Results) -> Json:
    """Times in microseconds, flops, bytes and launches of the first rank class."""
    graph = results.hosted[0].graph
    busy_s = device_busy_s(results)
    tasks = range(len(graph))
    durations = results.schedule.duration_s
    host_s = sum(
        durations[i]
        for i in tasks
        if graph.kind[i] in HOST_KINDS and graph.kind[i] is not TaskKind.SYNC
    )
    comm_s = sum(durations[i] for i in tasks if graph.kind[i] is TaskKind.COLLECTIVE)
    exposed_s = sum(
        s.duration_s for s in results.path.segments if s.kind is SegmentKind.COMM
    )
    kernels = list(_launched_kernels(graph))
    return {
        "gpu_active_us": busy_s * US,
        "gpu_idle_us": max(0.0, results.path.time_s - busy_s) * US,
        "host_us": host_s * US,
        "comm_us": comm_s * US,
        "exposed_comm_us": exposed_s * US,
        "flops": sum(kernel.work.flops for kernel in kernels),
        "bytes": sum(kernel.work.bytes for kernel in kernels),
        "launches": sum(kind in BUSY_KINDS for kind in graph.kind),
    }


def _launched_kernels(graph: LaunchGraph) -> Iterator[Kernel]:
    return (graph.kernels[number] for number in graph.kernel if number >= 0)


def device_busy_s(results: Results) -> float:
    """Seconds during which any stream of the first rank class is busy."""
    graph, schedule = results.hosted[0].graph, results.schedule
    spans = sorted(
        (schedule.start_s[i], schedule.end_s[i])
        for i, kind in enumerate(graph.kind)
        if kind in BUSY_KINDS
    )
    busy_s, reached_s = 0.0, 0.0
    for start_s, end_s in spans:
        busy_s += max(0.0, end_s - max(start_s, reached_s))
        reached_s = max(reached_s, end_s)
    return busy_s


def breakdown(results: Results) -> list[Json]:
    """Return where the time goes along the critical path, largest first."""
    sums_s: dict[tuple[str, str], float] = defaultdict(float)
    for segment in results.path.segments:
        key = (segment.kind.value, results.detail(segment.task))
        sums_s[key] += segment.duration_s
    rows = sorted(sums_s.items(), key=lambda item: (-item[1], item[0]))
    return [
        {"kind": kind, "detail": detail, "time_us": seconds * US}
        for (kind, detail), seconds in rows
    ]


def critical_path(results: Results) -> list[Json]:
    """Return the segments of the critical path, in order of time."""
    return [
        {
            "kind": segment.kind.value,
            "detail": results.detail(segment.task),
            "node": results.node_of(segment.task),
            "start_us": segment.start_s * US,
            "duration_us": segment.duration_s * US,
        }
        for segment in results.path.segments
    ]


def bound_shares(results: Results, target: Target) -> dict[str, float]:
    """Return the share of the critical path of each thing that can limit it.

    A kernel counts as `compute` where its flops take longer than its bytes, both
    at the peaks, else as `memory`, as does a copy; a gap counts as what waits for
    it, and a task that only states its time as `compute`. The host's own time and
    the launch latency are `host`.
    """
    shares = {"host": 0.0, "compute": 0.0, "memory": 0.0, "network": 0.0}
    for segment in results.path.segments:
        limit = _limit(segment, results, target)
        shares[limit] += segment.duration_s / results.path.time_s
    return shares


def _limit(segment: Segment, results: Results, target: Target) -> str:
    if segment.kind is SegmentKind.COMM:
        return "network"
    if segment.kind not in _ON_DEVICE:
        return "host"
    kernel = results.kernel(segment.task)
    if kernel is None:
        return "compute"
    return kernel_limit(kernel, target)


def kernel_limit(kernel: Kernel, target: Target) -> str:
    """Return `compute` where the flops take longer than the bytes, else `memory`."""
    compute_s = kernel.work.flops / target.peak(kernel.math)
    memory_s = kernel.work.bytes / target.device.memory.bytes_per_s
    return "compute" if compute_s > memory_s else "memory"


def coverage(results: Results) -> Json:
    """Return how much is modelled, and by what kind of number.

    Flops, bytes and microseconds are summed over kernels and copies, as often as
    they are launched.
    """
    unknown: Counter[str] = Counter()
    flops: defaultdict[str, int] = defaultdict(int)
    moved: defaultdict[str, int] = defaultdict(int)
    time_us: defaultdict[str, float] = defaultdict(float)
    for rank, hosted in enumerate(results.hosted):
        graph, offset = hosted.graph, results.schedule.offsets[rank]
        for task, kind in enumerate(graph.kind):
            if kind not in BUSY_KINDS:
                continue
            provenance = results.price(rank, task).provenance.value
            time_us[provenance] += results.schedule.duration_s[offset + task] * US
            if graph.kernel[task] < 0:
                continue
            kernel = graph.kernels[graph.kernel[task]]
            flops[provenance] += kernel.work.flops
            moved[provenance] += kernel.work.bytes
            if not kernel.known:
                unknown[kernel.op] += 1
    return {
        "ops": sum(len(hosted.graph.ops) for hosted in results.hosted),
        "unknown_ops": dict(unknown),
        "flops_by_provenance": dict(flops),
        "bytes_by_provenance": dict(moved),
        "time_by_provenance": dict(time_us),
    }
