"""What is compared: one measured step, as a trace of PyTorch's profiler has it."""

from __future__ import annotations

import functools
import math
import re
import statistics
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import attrs

from perfc.costmodels import target_of_device
from perfc.ir import Diagnostic, PerfcError, TaskKind
from perfc.ir.launch import BUSY_KINDS, HOST_KINDS
from perfc.ir.support import Level
from perfc.tools.diffs.kernel_names import kernel_class, short_name
from perfc.tools.diffs.measured_path import MeasuredPath, Stretch, last_task
from perfc.tools.diffs.op_names import plain_op
from perfc.tools.diffs.side import Segment, Side, SideNode
from perfc.tools.replay import MeasuredStep, check_steps, measured_steps, read_recorded
from perfc.traces import Recorded, RecordedTensor
from perfc.traces.events import DeviceWork, HostOp
from perfc.traces.owners import call_owners, op_parents

_KINDS: Mapping[TaskKind, str] = {
    TaskKind.HOST: "host",
    TaskKind.CALL: "host",
    TaskKind.SYNC: "sync",
    TaskKind.KERNEL: "kernel",
    TaskKind.COPY: "copy",
    TaskKind.COLLECTIVE: "comm",
}
"""Kinds of segments of a report."""

_DETAILS: Mapping[str, str] = {
    **dict.fromkeys(("phase", "begin", "offset"), "T1"),
    "T0": "T5",
}
"""What a prediction calls stretches of the host's time."""

_COPIES: Mapping[str, str] = {"HtoD": "h2d", "DtoH": "d2h", "DtoD": "d2d"}
_EVALUATED = "autograd::engine::evaluate_function: "
_GRADIENT = re.compile(r"Backward\d*$|_backward|AccumulateGrad")
_OPTIMIZER = "Optimizer."
_OUTSIDE = "outside of ops"
"""The op of what the step took beside its tasks."""


def measured_side(path: Path, steps: range | None, ops: Collection[str]) -> Side:
    """Return the step of a trace that takes the median time of its steps.

    Args:
        path: A Kineto trace, gzipped or not.
        steps: Numbers of the steps to take the median of; None for all.
        ops: Ops of the prediction, which tell what to call an op of several that are
            in each other.

    """
    (recorded,) = read_recorded([path], steps=steps)
    check_steps([recorded], steps)
    if not recorded.works:
        msg = (
            f"{path}: traceEvents: the device did nothing; there is nothing to compare"
        )
        raise PerfcError(msg)
    found = [s for s in measured_steps(recorded) if steps is None or s.number in steps]
    middle_us = statistics.median_low([step.us for step in found])
    step = next(one for one in found if one.us == middle_us)
    names = frozenset(map(plain_op, ops))
    nodes = _Step(recorded, step, names).nodes()
    device = recorded.trace.device or "a device without a name"
    return Side(
        str(path),
        f"{path.name}, {step.name}, measured on {device}",
        f"measured {device}",
        step.us,
        nodes,
        None,
        target=target_of_device(recorded.trace.device) or "",
        step=step.name,
        remarks=(*recorded.diagnostics, *_spread(recorded, step, found)),
    )


def _spread(
    recorded: Recorded, step: MeasuredStep, found: Sequence[MeasuredStep]
) -> Iterator[Diagnostic]:
    if len(found) > 1:
        least, most = min(s.us for s in found), max(s.us for s in found)
        message = (
            f"{step.name} is the median of {len(found)} steps, which take "
            f"{least / 1e3:,.4g} to {most / 1e3:,.4g} ms"
        )
        yield Diagnostic(Level.NOTE, "measured-step", message, recorded.trace.file)


@attrs.define(eq=False)
class _Owner:
    """An op of a step: what it launched, and what the host took for it.

    Attributes:
        name: What it is called.
        op: It itself; None for what no op is around.
        device: Its kernels, copies and collectives.
        host: Its time on the host.
        segments: Its parts of the time.

    """

    name: str
    op: HostOp | None
    device: list[int] = attrs.field(factory=list[int])
    host: list[int] = attrs.field(factory=list[int])
    segments: list[Segment] = attrs.field(factory=list[Segment])


@attrs.define(eq=False)
class _Step:
    """Takes one step of a trace apart.

    Attributes:
        recorded: The trace.
        step: The step.
        names: Plain names of the ops of the prediction.

    """

    recorded: Recorded
    step: MeasuredStep
    names: frozenset[str]
    _ops: list[HostOp] = attrs.field(init=False)
    _starts_us: list[float] = attrs.field(init=False)
    _parents: dict[int, HostOp | None] = attrs.field(init=False)
    _owners: dict[object, _Owner] = attrs.field(
        factory=dict[object, _Owner], init=False
    )
    _owner: dict[int, _Owner] = attrs.field(factory=dict[int, _Owner], init=False)
    _parts: set[int] = attrs.field(factory=set[int], init=False)

    def nodes(self) -> list[SideNode]:
        """Return its ops, each with its part of the time, in the order of the host."""
        self._own_device_tasks()
        graph = self.recorded.graph
        lines: dict[int, list[int]] = defaultdict(list)
        for task in self.step.tasks:
            if graph.kind[task] in HOST_KINDS:
                lines[graph.resource[task]].append(task)
        tops = {
            op.start_us: op
            for op in reversed(self.recorded.trace.ops)
            if not op.is_label and self._parents[id(op)] is None
        }
        for line in lines.values():
            if self._is_prediction:
                self._own_inner_ops(line)
            self._own_line(line, tops)
        step, recorded = self.step, self.recorded
        last = last_task(recorded, step.tasks, step.end_us)
        path = MeasuredPath(recorded)
        outside = _Owner(_OUTSIDE, None)
        for one in path.stretches(last, step.begin_us, step.end_us):
            owner = self._owner.get(one.task, outside)
            owner.segments.append(self._segment(one, owner))
        owners = sorted(self._owners.values(), key=self._first)
        if outside.segments:
            owners.append(outside)
        optimizer = _Labels(recorded.trace.ops, _OPTIMIZER)
        numbers: Counter[str] = Counter()
        return [self._node(owner, numbers, optimizer) for owner in owners]

    def _first(self, owner: _Owner) -> int:
        return min((*owner.host, *owner.device))

    def _own_device_tasks(self) -> None:
        trace, graph = self.recorded.trace, self.recorded.graph
        self._ops = [op for op in trace.ops if not op.is_label]
        self._starts_us = [op.start_us for op in self._ops]
        self._parents = op_parents(self._ops)
        owners = {
            call.correlation: self._at((call.start_us + call.end_us) / 2)
            if self._is_prediction
            else op
            for call, op in call_owners(trace.calls, self._ops, self._parents)
        }
        for task in self.step.tasks:
            if graph.kind[task] not in BUSY_KINDS:
                continue
            work = self.recorded.works[task]
            op = self._named(owners.get(work.correlation))
            owner = self._of(op, _op_of(work), task)
            owner.device.append(task)
            self._owner[task] = owner
            if op is not None:
                self._owner.setdefault(graph.issue[task], owner)

    def _of(self, op: HostOp | None, name: str, task: int = -1) -> _Owner:
        """Return an op; a task of none is one of its own, the host's by its name."""
        key: object = (name, task) if op is None else id(op)
        if key not in self._owners:
            own = name if op is None else op.name.removeprefix(_EVALUATED)
            self._owners[key] = _Owner(own, op)
        return self._owners[key]

    def _named(self, op: HostOp | None) -> HostOp | None:
        """Return the outermost op around one that is predicted; else that of all."""
        chain: list[HostOp] = []
        while op is not None:
            chain.append(op)
            op = self._parents[id(op)]
        if self._is_prediction:
            return next(iter(chain), None)
        chain.reverse()
        known = (one for one in chain if plain_op(one.name) in self.names)
        own = (one for one in chain if not one.name.startswith(_EVALUATED))
        return next(known, next(own, chain[0] if chain else None))

    @functools.cached_property
    def _is_prediction(self) -> bool:
        """Whether perfc wrote the trace: its ops are nodes, some in each other."""
        return any(work.signature for work in self.recorded.works.values())

    def _own_inner_ops(self, line: Sequence[int]) -> None:
        """Give the host's time of a prediction to the innermost op that it is in.

        What follows an op without time between is the next part of the same call.
        """
        graph, start_us = self.recorded.graph, self.recorded.start_us
        for before, task in pairwise((-1, *line)):
            if graph.op[task] < 0 or graph.kind[task] is not TaskKind.HOST:
                continue
            op = self._at((start_us[task] + self.recorded.end_us[task]) / 2)
            self._owner[task] = self._of(op, graph.detail[task])
            if graph.detail[task] == "T2" and before >= 0 and graph.op[before] >= 0:
                self._parts.add(task)

    def _at(self, now_us: float) -> HostOp | None:
        """Return the innermost op at a time; of two that meet there, the first."""
        place = bisect_left(self._starts_us, now_us) - 1
        op = self._ops[place] if place >= 0 else None
        while op is not None and op.end_us < now_us:
            op = self._parents[id(op)]
        return op

    def _own_line(self, line: Sequence[int], tops: Mapping[float, HostOp]) -> None:
        """Give the host's time to what is launched next in an op, else to what was.

        What lies between two ops is of the second one.
        """
        graph, start_us = self.recorded.graph, self.recorded.start_us
        launched: dict[int, _Owner] = {}
        for task in line:
            if graph.op[task] < 0:
                continue
            own = self._owner.get(task) or launched.get(graph.op[task])
            if own is not None:
                launched[graph.op[task]] = own
        behind: dict[int, _Owner] = {}
        following: _Owner | None = None
        for task in reversed(line):
            top = graph.op[task]
            owner = self._owner.get(task) or behind.get(top) or launched.get(top)
            if top < 0 and graph.kind[task] is TaskKind.HOST:
                owner = following or self._of(None, _OUTSIDE)
            elif owner is None:
                name = graph.detail[task] if top < 0 else graph.ops[top].name
                owner = self._of(tops.get(start_us[task]), name)
            if top >= 0:
                behind[top] = owner
            self._owner[task] = following = owner
            owner.host.append(task)

    def _segment(self, one: Stretch, owner: _Owner) -> Segment:
        graph = self.recorded.graph
        if one.task < 0:
            return Segment("idle", _OUTSIDE, one.us)
        number = owner.device.index(one.task) if one.task in owner.device else -1
        detail = self._detail(one.task)
        if one.waits:
            return Segment("launch" if one.launched else "idle", detail, one.us, number)
        return Segment(_KINDS[graph.kind[one.task]], detail, one.us, number)

    def _detail(self, task: int) -> str:
        graph = self.recorded.graph
        kind = graph.kind[task]
        if kind is TaskKind.CALL:
            return "T4"
        if task in self._parts:
            return "T5"
        if kind in HOST_KINDS:
            return _DETAILS.get(graph.detail[task], graph.detail[task])
        return self._class(task)

    def _class(self, task: int) -> str:
        work = self.recorded.works[task]
        if self.recorded.graph.kind[task] is TaskKind.COPY:
            return next((v for k, v in _COPIES.items() if k in work.name), "copy")
        if work.signature is not None:
            return work.signature.op
        return work.collective.kind if work.collective else kernel_class(work.name)

    def _kernel(self, task: int) -> str:
        """Return a kernel as reports write it; without types where none are told."""
        work = self.recorded.works[task]
        one = work.signature
        if one is not None:
            return " ".join(filter(None, (one.op, one.dtype, one.math)))
        is_copy = self.recorded.graph.kind[task] is TaskKind.COPY
        return "memcpy" if is_copy else self._class(task)

    def _node(
        self, owner: _Owner, numbers: Counter[str], optimizer: _Labels
    ) -> SideNode:
        recorded, op = self.recorded, owner.op
        number = numbers[owner.name]
        numbers[owner.name] += 1
        timed = owner.device or owner.host
        stated_us = (recorded.end_us[t] - recorded.start_us[t] for t in timed)
        if op is not None and optimizer.are_around(op):
            phase = "optimizer"
        else:
            phase = "backward" if self._is_gradient(op) else "forward"
        return SideNode(
            rank=0,
            id=f"{owner.name}#{number}",
            op=owner.name,
            module=op.place.module if op else "",
            phase=phase,
            operands=_operands(op),
            kernels=tuple(map(self._kernel, owner.device)),
            duration_us=math.fsum(stated_us),
            fuses=(),
            segments=owner.segments,
            measured=owner.name,
            is_bare=op is None and len(owner.device) == 1,
            names=tuple(recorded.works[task].name for task in owner.device),
        )

    def _is_gradient(self, op: HostOp | None) -> bool:
        while op is not None:
            if op.is_gradient or _GRADIENT.search(op.name):
                return True
            op = self._parents[id(op)]
        return False


def _op_of(work: DeviceWork) -> str:
    """Return a name for the op of a kernel that no op is around.

    perfc names kernels by their ops, and by what they compute.
    """
    one = work.signature
    op = one and work.name.removesuffix(f" {one.op} {one.math}")
    return op or short_name(work.name)


class _Labels:
    """Stretches of time that labels of some name mark."""

    def __init__(self, ops: Sequence[HostOp], name: str) -> None:
        own = [op for op in ops if op.is_label and op.name.startswith(name)]
        self._starts_us = [op.start_us for op in own]
        self._ends_us = [op.end_us for op in own]

    def are_around(self, op: HostOp) -> bool:
        """Whether an op began in the last of them that had."""
        at = bisect_right(self._starts_us, op.start_us) - 1
        return at >= 0 and op.start_us < self._ends_us[at]


def _operands(op: HostOp | None) -> tuple[str, ...]:
    """Return the types of its tensors, as reports write them."""
    call = op.recorded if op is not None else None
    if call is None:
        return ()
    tensors = [a for a in call.arguments if isinstance(a, RecordedTensor)]
    return tuple(
        f"{t.dtype.name if t.dtype else '?'}[{','.join(map(str, t.shape))}]"
        for t in tensors
    )
