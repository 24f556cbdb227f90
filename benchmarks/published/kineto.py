"""Ops of PyTorch that launched each kernel, in a trace that perfc reads.

Device work is known by the correlation of the call that launched it, the call by the
thread and time of the innermost op around it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from perfc.traces.events import DeviceKind, HostOp
from perfc.traces.events import Trace as Recorded
from perfc.traces.kineto import read_trace
from perfc.traces.owners import call_owners, op_parents

_KINDS = {
    DeviceKind.KERNEL: "kernel",
    DeviceKind.COPY: "memcpy",
    DeviceKind.MEMSET: "memset",
}


@attrs.define(eq=False)
class Op:
    """One call of one op, and what was launched inside of it, itself included.

    Attributes:
        name: Name, as `aten::addmm`.
        start_us: When it began.
        end_us: When it ended.
        thread: The thread that it ran on.
        dims: Shapes of its arguments; `()` for one that is no tensor.
        parent: The op that it ran in.
        device: Kind (`kernel`, `memcpy`, `memset`) and name of each device task.

    """

    name: str
    start_us: float
    end_us: float
    thread: object
    dims: tuple[tuple[int, ...], ...]
    parent: Op | None = None
    device: list[tuple[str, str]] = attrs.field(factory=list["tuple[str, str]"])

    @property
    def outermost(self) -> Op:
        """The outermost op of a library (`aten::…`) around this one, or this one."""
        found, op = self, self.parent
        while op is not None:
            if is_library(op.name) or not is_library(found.name):
                found = op
            op = op.parent
        return found


def is_library(name: str) -> bool:
    """Whether a name is an op's (`aten::mm`), not a node of autograd or a mark."""
    return "::" in name and not name.startswith(("autograd::", "torch::"))


@attrs.frozen(eq=False)
class Trace:
    """What a trace holds.

    Attributes:
        ops: Every op, in the order of their starts.
        steps: Start and end of each step that the profiler marked, in microseconds.
        unowned: Names of device tasks whose launch is in no op.

    """

    ops: Sequence[Op]
    steps: Sequence[tuple[float, float]]
    unowned: Sequence[str]


def read(path: Path) -> Trace:
    """Read a trace."""
    trace = read_trace(path)
    found = [op for op in trace.ops if not op.is_label]
    made = _ops(found)
    unowned = _attribute(made, found, trace)
    ops = [made[id(op)] for op in found]
    return Trace(ops, [(s.start_us, s.end_us) for s in trace.steps], unowned)


def _ops(found: Sequence[HostOp]) -> dict[int, Op]:
    """Make the ops, each with the op around it on its thread, by identity."""
    made: dict[int, Op] = {}
    around = op_parents(found)
    for o in found:
        parent = around[id(o)]
        outer = None if parent is None else made[id(parent)]
        made[id(o)] = Op(o.name, o.start_us, o.end_us, o.thread, o.dims, outer)
    return made


def _attribute(
    made: Mapping[int, Op], found: Sequence[HostOp], trace: Recorded
) -> list[str]:
    """Give each device task to the innermost op that launched it."""
    device = {work.correlation: work for work in trace.works}
    calls = [call for call in trace.calls if call.correlation in device]
    unowned: list[str] = []
    for call, op in call_owners(calls, found):
        work = device[call.correlation]
        if op is None:
            unowned.append(work.name)
        else:
            made[id(op)].device.append((_KINDS[work.kind], work.name))
    return unowned


def within(ops: Iterable[Op], step: tuple[float, float]) -> list[Op]:
    """Return the ops that began in a step, on any thread."""
    start_us, end_us = step
    return [op for op in ops if start_us <= op.start_us < end_us]


def tasks_by_op(ops: Iterable[Op], kind: str = "") -> Counter[str]:
    """Count the device tasks by the outermost op that launched them."""
    found: Counter[str] = Counter()
    for op in ops:
        found[op.outermost.name] += sum(kind in ("", k) for k, _ in op.device)
    return +found
