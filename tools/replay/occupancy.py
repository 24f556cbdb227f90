"""Kernels of a trace that occupy SMs, so that those of other streams wait."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from perfc.costmodels import Device, load_target, target_of_device
from perfc.costmodels.constants import constants
from perfc.costmodels.machine import HasMultiprocessors, blocks_left, blocks_per_sm
from perfc.ir import TaskKind
from perfc.ir.support import brief
from perfc.traces import Recorded
from perfc.traces.events import DeviceWork, HostOp, Shape, Stream, Trace

URGENT_LABEL = "## start_sparse_data_dist"
"""TorchRec's pipeline (`TrainPipelineSparseDist`) gives the stream that it launches on
here the priority -1; a trace does not tell priorities."""

TIE_US = constants("traces").number("longest_gap_us")
"""Rivals that come within this time come in the order of the trace."""

_SMALL = Shape(1, 1, 0, 0)
"""The least that a kernel can be, for those of which the trace does not tell more."""


@attrs.frozen(eq=False)
class Rooms:
    """For which part of their time kernels of a trace leave others no room.

    Attributes:
        device: What they run on.
        shapes: How kernels and collectives are cut into blocks, by task, where told.
        alone: What a kernel takes without those that ran beside it, as a part of what
            it took, by task.
        measured: When a task that had waited for room began in the time of a kernel, as
            a part of it, by both.

    """

    __repr__ = brief

    device: HasMultiprocessors
    shapes: Mapping[int, Shape]
    alone: Mapping[int, float]
    measured: Mapping[tuple[int, int], float]
    _shares: dict[tuple[Shape, Shape], float] = attrs.field(
        factory=dict[tuple[Shape, Shape], float], init=False
    )

    def share(self, kernel: int, other: int) -> float:
        """Return the part of *kernel*'s time before *other* finds room, 0 to 1."""
        shape = self.shapes.get(kernel)
        if shape is None:
            return 0.0
        if (kernel, other) in self.measured:
            return self.measured[kernel, other]
        pair = shape, self.shapes.get(other, _SMALL)
        if pair not in self._shares:
            self._shares[pair] = full_share(self.device, *pair)
        return self._shares[pair] * self.alone.get(kernel, 1.0)


def full_share(device: HasMultiprocessors, kernel: Shape, other: Shape) -> float:
    """Return the part of a kernel's time before a block of another one finds room.

    The kernel's blocks run in waves; after the last one has begun, no new ones come and
    those on an SM end one by one. How far they are then is even between 0 and 1 where
    several waves have mixed them: the first of all SMs to have few enough left is known
    by the order statistics of that. Blocks of a single wave began and end together.
    """
    at_most = blocks_per_sm(
        device, kernel.threads, kernel.registers, kernel.shared_bytes
    )
    at_once = device.sm_count * at_most
    waves = math.ceil(kernel.blocks / at_once)
    # Blocks of the last wave on the SM that has fewest.
    last = (kernel.blocks - (waves - 1) * at_once) // device.sm_count
    beside = blocks_left(device, _held(kernel), _held(other))
    if waves > 1:
        begun = 1 - 1 / waves
        if last <= beside:
            return begun
        ways = device.sm_count * math.comb(last, beside)
        return begun + float(ways ** (-1 / (last - beside))) / waves
    return 0.0 if last <= beside else 1.0


def _held(shape: Shape) -> tuple[int, int, int]:
    return shape.threads, shape.registers, shape.shared_bytes


def rooms_of(recorded: Recorded, device: Device | None = None) -> Rooms | None:
    """Return which kernels of a trace leave which others no room, and how long.

    None where only one stream has kernels or collectives, where the trace tells no
    grid, and of a device of which neither a target nor the trace tells enough.

    Args:
        recorded: A trace.
        device: What its kernels run on, if not what they ran on.

    """
    graph = recorded.graph
    kinds = {TaskKind.KERNEL, TaskKind.COLLECTIVE}
    tasks = [t for t, kind in enumerate(graph.kind) if kind in kinds]
    # The GPU of a trace: by its sheet, else as the trace tells.
    target = target_of_device(recorded.trace.device)
    own = (
        recorded.trace.multiprocessors if target is None else load_target(target).device
    )
    sms = device or own
    if sms is None or len({graph.resource[task] for task in tasks}) == 1:
        return None
    works = recorded.works
    shapes = {t: shape for t in tasks if (shape := works[t].shape) is not None}
    kernels = [t for t in tasks if graph.kind[t] is TaskKind.KERNEL]
    if shapes.keys().isdisjoint(kernels):
        return None
    alone = dict(_alone([(t, works[t]) for t in kernels]))
    guessed = Rooms(sms, shapes, alone, {})
    if sms != own:  # where as many blocks are other waves
        return guessed
    return attrs.evolve(guessed, measured=dict(_measured(recorded, guessed, tasks)))


def _measured(
    recorded: Recorded, guessed: Rooms, tasks: Iterable[int]
) -> Iterator[tuple[tuple[int, int], float]]:
    """Yield when tasks that had waited for room began, in the time of kernels."""
    graph, start_us, end_us = recorded.graph, recorded.start_us, recorded.end_us
    ready_us = _ready_us(recorded)
    running: dict[int, list[int]] = defaultdict(list)
    for task in sorted(tasks, key=start_us.__getitem__):
        now_us = start_us[task]
        device = graph.resources[graph.resource[task]].device
        running[device] = [k for k in running[device] if end_us[k] > now_us]
        if now_us - ready_us[task] > TIE_US:
            for kernel in running[device]:
                if guessed.share(kernel, task) > 0:
                    length_us = end_us[kernel] - start_us[kernel]
                    yield (kernel, task), (now_us - start_us[kernel]) / length_us
        if graph.kind[task] is TaskKind.KERNEL:
            running[device].append(task)


def _ready_us(recorded: Recorded) -> list[float]:
    """Return when all was done that each task waits for, as measured."""
    graph, end_us = recorded.graph, recorded.end_us
    ready_us: list[float] = []
    last: dict[int, float] = {}
    for task, (resource, issue) in enumerate(
        zip(graph.resource, graph.issue, strict=True)
    ):
        ends = [last.get(resource, 0.0), *(end_us[t] for t in graph.after[task])]
        if issue >= 0:
            ends.append(end_us[issue])
        ready_us.append(max(ends))
        # What waits on a stream hands on what it has waited for.
        is_wait = graph.kind[task] is TaskKind.WAIT
        last[resource] = ready_us[task] if is_wait else end_us[task]
    return ready_us


def _alone(kernels: Sequence[tuple[int, DeviceWork]]) -> Iterator[tuple[int, float]]:
    """Yield kernels that took longer than usual because of those that came later.

    Usual is what equal ones, after an equal one, took while nothing else began. They
    hand out their blocks at that pace until others come, which they then wait for.
    """
    order = sorted(kernels, key=lambda one: one[1].start_us)
    equal: dict[object, list[tuple[int, float, bool]]] = defaultdict(list)
    before: dict[Stream, object] = {}
    for at, (task, work) in enumerate(order):
        own = work.name, work.shape
        joined = at + 1 < len(order) and order[at + 1][1].start_us < work.end_us
        length_us = work.end_us - work.start_us
        equal[before.get(work.stream), own].append((task, length_us, joined))
        before[work.stream] = own
    for group in equal.values():
        free_us = [length_us for _, length_us, joined in group if not joined]
        if not free_us:
            continue
        usual_us = statistics.median(free_us)
        for task, length_us, joined in group:
            if joined and length_us > usual_us:
                yield task, usual_us / length_us


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
