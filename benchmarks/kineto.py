"""Read a Kineto trace: the ops of PyTorch, and the kernels that each launched.

A small reader for the comparison of launches; `perfc` itself reads no traces here.
Device work is known by the correlation id of the call that launched it, the call by
the thread and time of the innermost op around it. Traces of 2021 write other names
of categories (`Operator`, `Runtime`, `Kernel`) than later ones.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import attrs

Event: TypeAlias = Mapping[str, Any]
Dims: TypeAlias = tuple[tuple[int, ...], ...]

_OPS = frozenset({"cpu_op", "operator"})
_CALLS = frozenset({"cuda_runtime", "cuda_driver", "runtime"})
_DEVICE = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
}
_STEP = "ProfilerStep"


@attrs.define(eq=False)
class Op:
    """One call of one op, and what was launched inside of it, itself included.

    Attributes:
        name: Name, as `aten::addmm`.
        start_us: When it began.
        end_us: When it ended.
        thread: The thread that it ran on.
        dims: Shapes of its arguments; `()` for one that is no tensor.
        types: Types of its arguments as the trace writes them.
        parent: The op that it ran in.
        device: Kind (`kernel`, `memcpy`, `memset`) and name of each device task.

    """

    name: str
    start_us: float
    end_us: float
    thread: object
    dims: Dims
    types: tuple[str, ...]
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
    """Read a trace (`.json.gz`)."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        events: list[Event] = json.load(stream)["traceEvents"]
    spans = [event for event in events if event.get("ph") == "X"]
    ops = _ops(spans)
    unowned = _attribute(ops, spans)
    marks = (e for e in spans if str(e["name"]).startswith(_STEP))
    host = {_key(e) for e in spans if _category(e) in _OPS}
    steps = {_span(e) for e in marks if _key(e) in host}
    return Trace(ops, sorted(steps), unowned)


def _category(event: Event) -> str:
    return str(event.get("cat", "")).lower()


def _key(event: Event) -> object:
    return (event["pid"], str(event["tid"]))


def _span(event: Event) -> tuple[float, float]:
    return float(event["ts"]), float(event["ts"]) + float(event["dur"])


def _ops(spans: Iterable[Event]) -> list[Op]:
    """Make the ops, each with the op around it on its thread."""
    made = [_op(event) for event in spans if _category(event) in _OPS]
    made.sort(key=lambda op: (op.start_us, -op.end_us))
    open_ops: dict[object, list[Op]] = defaultdict(list)
    for op in made:
        stack = open_ops[op.thread]
        while stack and stack[-1].end_us <= op.start_us:
            stack.pop()
        op.parent = stack[-1] if stack else None
        stack.append(op)
    return made


def _op(event: Event) -> Op:
    args = event.get("args", {})
    dims = args.get("Input Dims", args.get("Input dims", ()))
    types = args.get("Input type", ())
    start_us, end_us = _span(event)
    return Op(
        str(event["name"]),
        start_us,
        end_us,
        _key(event),
        tuple(_shape(shape) for shape in dims),
        tuple(map(str, types)),
    )


def _shape(dims: object) -> tuple[int, ...]:
    """A list of tensors keeps the shape of none of them."""
    if not isinstance(dims, list):
        return ()
    return tuple(n for n in dims if isinstance(n, int))


def _attribute(ops: Sequence[Op], spans: Sequence[Event]) -> list[str]:
    """Give each device task to the innermost op that launched it."""
    device: dict[int, tuple[str, str]] = {}
    for event in spans:
        kind = _DEVICE.get(_category(event))
        correlation = event.get("args", {}).get("correlation")
        if kind and correlation is not None:
            device[correlation] = (kind, str(event["name"]))
    calls = [event for event in spans if _category(event) in _CALLS]
    calls = [e for e in calls if e.get("args", {}).get("correlation") in device]
    calls.sort(key=lambda event: float(event["ts"]))
    unowned: list[str] = []
    for event, op in _around(calls, ops):
        task = device[event["args"]["correlation"]]
        if op is None:
            unowned.append(task[1])
        else:
            op.device.append(task)
    return unowned


def _around(
    calls: Sequence[Event], ops: Sequence[Op]
) -> Iterator[tuple[Event, Op | None]]:
    """Walk calls and ops in time; yield the innermost op around each call."""
    latest: dict[object, Op] = {}
    position = 0
    for event in calls:
        at = float(event["ts"])
        while position < len(ops) and ops[position].start_us <= at:
            latest[ops[position].thread] = ops[position]
            position += 1
        op: Op | None = latest.get(_key(event))
        while op is not None and op.end_us < at:
            op = op.parent
        yield event, op


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
