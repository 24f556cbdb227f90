"""Kernels of a trace that occupy every SM, so that those of other streams wait."""

from __future__ import annotations

import math

from perfc.costmodels import Device, load_target, target_of_device
from perfc.costmodels.machine import blocks_per_sm
from perfc.ir import TaskKind
from perfc.traces import Recorded
from perfc.traces.events import HostOp, Shape, Trace

URGENT_LABEL = "## start_sparse_data_dist"
"""TorchRec's pipeline (`TrainPipelineSparseDist`) gives the stream that it launches on
here the priority -1; a trace does not tell priorities."""


def full_shares(recorded: Recorded, device: Device | None = None) -> dict[int, float]:
    """Return for which part of its time a kernel leaves no room: up to its last wave.

    Nothing is said where only one stream has kernels, of kernels whose grid the trace
    does not tell, and of a device that perfc has no target for.

    Args:
        recorded: A trace.
        device: What its kernels run on, if not what they ran on.

    """
    graph = recorded.graph
    kernels = [t for t, kind in enumerate(graph.kind) if kind is TaskKind.KERNEL]
    device = device or _device_of(recorded.trace)
    if device is None or len({graph.resource[task] for task in kernels}) == 1:
        return {}
    found: dict[int, float] = {}
    for task in kernels:
        shape = recorded.works[task].shape
        waves = 1 if shape is None else _waves(shape, device)
        if waves > 1:
            found[task] = 1 - 1 / waves
    return found


def _device_of(trace: Trace) -> Device | None:
    target = target_of_device(trace.device)
    return None if target is None else load_target(target).device


def _waves(shape: Shape, device: Device) -> int:
    at_once = device.sm_count * blocks_per_sm(
        device, shape.threads, shape.registers, shape.shared_bytes
    )
    return math.ceil(shape.blocks / at_once)


def urgent_kernels(recorded: Recorded) -> set[int]:
    """Return the kernels of streams that are known to have a high priority."""
    graph = recorded.graph
    streams = _urgent_streams(recorded.trace)
    return {
        task
        for task, work in recorded.works.items()
        if graph.kind[task] is TaskKind.KERNEL and work.stream in streams
    }


def _urgent_streams(trace: Trace) -> set[tuple[int, int]]:
    labels = [op for op in trace.ops if op.name.startswith(URGENT_LABEL)]
    if not labels:
        return set()
    streams = {
        work.correlation: work.stream for work in trace.works if not work.is_collective
    }
    return {
        streams[call.correlation]
        for call in trace.calls
        if call.correlation in streams
        and any(_holds(label, call.thread, call.start_us) for label in labels)
    }


def _holds(label: HostOp, thread: object, at_us: float) -> bool:
    return label.thread == thread and label.start_us <= at_us < label.end_us
