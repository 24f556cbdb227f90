"""The numbers of a report that describe the iteration as a whole."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import Target
from perfc.ir import Kernel, LaunchGraph, TaskKind
from perfc.ir.launch import BUSY_KINDS, HOST_KINDS
from perfc.ir.support import US, Json
from perfc.passes import task_mask
from perfc.passes.facts import SEGMENT_KINDS, HostedLaunches, SegmentKind
from perfc.passes.timing import finish_s, kernel_numbers
from perfc.tools.models import goes_along
from perfc.tools.reports.ranks import busy_s, comm_s, exposed_s
from perfc.tools.reports.results import STATED, Results
from perfc.tools.reports.weak_constants import weakest_constant

LIMITS: tuple[str, ...] = ("host", "compute", "memory", "network")
"""What can limit the time."""
_HOST = LIMITS.index("host")
_FLOATS = ("fp", "bf", "nvfp")
_ON_DEVICE = frozenset({SegmentKind.KERNEL, SegmentKind.COPY, SegmentKind.IDLE})


def totals(results: Results) -> Json:
    """Times in microseconds, flops, bytes and launches of the critical rank class."""
    number = results.critical
    graph = results.hosted[number].graph
    active_s = busy_s(results, number, BUSY_KINDS)
    counted = [(kernel.work, count) for kernel, count in _launched(graph)]
    # The seconds that the host of a rank class works.
    shown = task_mask(results.hosted[number].graph, HOST_KINDS - {TaskKind.SYNC})
    own_s = results.class_tasks(results.schedule.durations_s, number)
    return {
        "gpu_active_us": active_s * US,
        "gpu_idle_us": max(0.0, results.path.time_s - active_s) * US,
        "host_us": math.fsum(own_s[shown].tolist()) * US,
        "comm_us": comm_s(results, number) * US,
        "exposed_comm_us": exposed_s(results, number) * US,
        "flops": sum(work.flops * count for work, count in counted),
        "bytes": sum(work.bytes * count for work, count in counted),
        "launches": int(np.count_nonzero(task_mask(graph, BUSY_KINDS))),
    }


def throughput(
    results: Results, samples: int | None, tokens: int | None, *, on_cpu: bool
) -> Json:
    """Samples and tokens a second, the time of the device alone; null where unknown.

    Args:
        results: The facts.
        samples: Of the step, all replicas together; None: the model has none.
        tokens: Of a sample; None: nobody knows.
        on_cpu: Whether the device is the host's own processor.

    """
    time_s = results.path.time_s
    rate = samples / time_s if samples and time_s else None
    return {
        "device_only_us": None if on_cpu else _device_alone_s(results) * US,
        "samples_per_s": rate,
        "tokens_per_s": rate * tokens if rate and tokens else None,
    }


_MATRICES = frozenset({"gemm", "conv2d", "conv3d", "attention", "linear_attention"})
_MOST_BACKWARD = 2
"""Times as long as forward that backward's matrices take: for both operands' gradients.
What takes longer computes something again."""


def utilization(
    results: Results, phases: Mapping[str, str], target: Target
) -> float | None:
    """Return the share of the peak that the model's own flops reach; None if unknown.

    Nobody asks for it but of models with attention or recurrent layers.

    They are those of GEMMs, convolutions and attention in forward and backward, each at
    the peak of the type that it computes in, over all ranks and the time of the step.
    What is computed again in backward is none of the model's, nor is the optimizer.
    Ranks that compute one replica together may repeat each other's: nobody knows which.

    Args:
        results: The facts.
        phases: The phase of each node of the op graphs, by its name.
        target: What it runs on.

    """
    ideal_s: defaultdict[str, float] = defaultdict(float)
    program, classes = results.program, results.program.classes
    shared = any(len(rank.ranks) > program.replicas for rank in classes)
    if shared or not goes_along(program):
        return None
    for rank, hosted in zip(classes, results.hosted, strict=True):
        graph = hosted.graph
        kernels_s = [
            kernel.work.flops / target.peak(kernel.math)
            if kernel.op in _MATRICES
            else 0.0
            for kernel in graph.kernels
        ]
        numbers = kernel_numbers(graph).tolist()
        for number, op in zip(numbers, graph.op, strict=True):
            if number >= 0:
                phase = phases.get(graph.ops[op].node, "") if op >= 0 else ""
                ideal_s[phase] += kernels_s[number] * len(rank.ranks)
    backward_s = ideal_s.pop("backward", 0.0)
    ideal_s.pop("optimizer", 0.0)
    forward_s = math.fsum(ideal_s.values())
    ranks = sum(len(rank.ranks) for rank in classes)
    own_s = forward_s + min(backward_s, _MOST_BACKWARD * forward_s)
    spent_s = results.path.time_s * ranks
    return own_s / spent_s if own_s and spent_s else None


def _device_alone_s(results: Results) -> float:
    """Return the seconds of the step if the host took no time, calls included."""
    timeline, durations_s = results.timeline, results.schedule.durations_s.copy()
    shown = [task_mask(graph, HOST_KINDS) for graph in timeline.graphs]
    durations_s[np.concatenate(shown)] = 0.0
    return finish_s(timeline, durations_s.tolist())


def power(results: Results, samples: int | None, target: Target) -> Json:
    """Joules of the step, samples for each and the SM clock; null where unknown.

    Of boards that nobody has measured, they are those of their share of the nodes, if
    the sheet says what a node draws.

    Args:
        results: The facts.
        samples: Of the step, all replicas together; None: the model has none.
        target: What it runs on.

    """
    found, time_s = results.sustained, results.path.time_s
    joules = None if found is None else found.joules(time_s)
    if joules is None and target.node_power is not None:
        from perfc.tools.reports.node_watts import node_watts

        watts = node_watts(results, target)
        joules = None if watts is None else watts * time_s
    clock_hz = None if found is None else found.clock_hz[results.critical]
    return {
        "energy_j": joules,
        "samples_per_j": samples / joules if samples and joules else None,
        "sm_clock_mhz": None if clock_hz is None else clock_hz / 1e6,
    }


def computed_in(results: Results) -> str:
    """Return the float type that most arithmetic is done in, else most bytes are of."""
    done: dict[str, tuple[float, float]] = {}
    for kernel, count in _launched(results.hosted[results.critical].graph):
        if kernel.dtype.startswith(_FLOATS):
            flops, moved = done.get(kernel.dtype, (0.0, 0.0))
            flops, moved = (
                flops + count * kernel.work.flops,
                moved + count * kernel.work.bytes,
            )
            done[kernel.dtype] = (flops, moved)
    return max(done, key=done.__getitem__, default="fp32")


def has_tf32(results: Results) -> bool:
    """Whether any kernel computes in TF32."""
    return any(k.math == "tf32" for g in results.graphs for k in g.kernels)


def _launched(graph: LaunchGraph) -> Iterator[tuple[Kernel, int]]:
    numbers = kernel_numbers(graph)
    launched: NDArray[np.int64] = numbers[numbers >= 0]
    counts: list[int] = np.bincount(launched, minlength=len(graph.kernels)).tolist()
    yield from zip(graph.kernels, counts, strict=True)


def breakdown(results: Results) -> list[Json]:
    """Return where the time goes along the critical path, largest first."""
    sums_s: dict[tuple[str, str], float] = defaultdict(float)
    kinds, tasks, _, durations_s = results.path.segment_table
    columns = (kinds.tolist(), tasks.tolist(), durations_s.tolist())
    names = [kind.value for kind in SegmentKind]
    for kind, task, duration_s in zip(*columns, strict=True):
        sums_s[names[kind], results.detail(task)] += duration_s
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
            "rank": results.program.classes[results.place(segment.task)[0]].ranks[0],
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
    kind, task, _, duration_s = results.path.segment_table
    on_device = np.isin(kind, [SEGMENT_KINDS.index(k) for k in _ON_DEVICE])
    network = kind == SEGMENT_KINDS.index(SegmentKind.COMM)
    limit = np.where(on_device, device_limits(results.hosted, target)[task], _HOST)
    limit = np.where(network, LIMITS.index("network"), limit)
    shares = np.bincount(limit, duration_s / results.path.time_s, minlength=len(LIMITS))
    return dict(zip(LIMITS, shares.tolist(), strict=True))


def device_limits(
    hosted: Sequence[HostedLaunches], target: Target
) -> NDArray[np.int64]:
    """Return the place in `LIMITS` of what limits each task, if on the device."""
    limits: list[NDArray[np.int64]] = []
    for launches in hosted:
        kernels = launches.graph.kernels
        # The last one, which -1 finds, is for a task that only states its time.
        names = [*(kernel_limit(kernel, target) for kernel in kernels), "compute"]
        numbers = np.array([LIMITS.index(name) for name in names])
        limits.append(numbers[kernel_numbers(launches.graph)])
    return np.concatenate(limits)


def kernel_limit(kernel: Kernel, target: Target) -> str:
    """Return `compute` where the flops take longer than the bytes, else `memory`.

    A collective, which computes in no mode of the device's, is limited by the network.
    """
    if not kernel.math:
        return "network"
    compute_s = kernel.work.flops / target.peak(kernel.math)
    memory_s = kernel.work.bytes / target.device.memory.bytes_per_s
    return "compute" if compute_s > memory_s else "memory"


def coverage(results: Results, target: Target) -> Json:
    """Return how much is modelled, and by what kind of number.

    Flops, bytes and microseconds are summed over kernels and copies, as often as
    they are launched.
    """
    weak_us: defaultdict[str, float] = defaultdict(float)
    unknown: Counter[str] = Counter()
    flops: defaultdict[str, int] = defaultdict(int)
    moved: defaultdict[str, int] = defaultdict(int)
    time_us: defaultdict[str, float] = defaultdict(float)
    for rank, hosted in enumerate(results.hosted):
        graph, offset = hosted.graph, results.schedule.offsets[rank]
        # The weakest kind of constant that each kernel of a rank class rests on.
        costs = results.costs[rank]
        prices = zip(costs.model, costs.provenance, strict=True)
        kernels = zip(results.hosted[rank].graph.kernels, prices, strict=True)
        weakest = [
            weakest_constant(kernel, *price, target) for kernel, price in kernels
        ]
        for task, kind in enumerate(graph.kind):
            if kind not in BUSY_KINDS:
                continue
            price = results.price(rank, task)
            provenance = price.provenance.value
            duration_us = results.schedule.duration_s[offset + task] * US
            time_us[provenance] += duration_us
            if graph.kernel[task] < 0:
                continue
            weak = weakest[graph.kernel[task]]
            if weak and price is not STATED:
                weak_us[weak] += duration_us
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
        "time_by_weakest_constant": dict(weak_us),
    }
