"""What a trace's ops launched: one op graph of all of them, and who made which task."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import attrs

from perfc.frontends import NotRecordedError, RecordedGraph
from perfc.ir import DTYPES, DType, Program, TaskKind
from perfc.traces import (
    HostOp,
    Recorded,
    RecordedOp,
    RecordedTensor,
    call_owners,
)

NO_OP = "no op around the launch"
NO_INPUTS = "its arguments are not recorded"

_TF32 = re.compile(r"tf32|tensorop_s1688(gemm|fprop|dgrad|wgrad)_\d")
"""Kernels of CUTLASS and cuDNN that multiply fp32 in TF32 say so."""


@attrs.frozen(eq=False)
class OpLaunches:
    """Kernels and memsets that one call of one op launched.

    Attributes:
        op: Name of the op, "" for none.
        key: What the names of its nodes begin with in the op graph; "" if it has none.
        missing: Why it has none.
        tasks: Its tasks, in order.
        uses_tf32: Whether one of its kernels says that it multiplies fp32 in TF32.

    """

    op: str
    key: str
    missing: str
    tasks: tuple[int, ...]
    uses_tf32: bool


@attrs.frozen(eq=False)
class TraceOps:
    """The ops of a trace that launched something.

    Attributes:
        recorded: The trace.
        program: An op graph of the distinct calls that perfc knows; None if it knows
            none.
        launches: What each call launched.
        default: The element type that lists of tensors are taken to have.

    """

    recorded: Recorded
    program: Program | None
    launches: Sequence[OpLaunches]
    default: DType


def trace_ops(recorded: Recorded) -> TraceOps:
    """Find out which op launched what, and lower each distinct call once."""
    trace = recorded.trace
    tasks: dict[int, list[int]] = defaultdict(list)
    for task, work in recorded.works.items():
        if recorded.graph.kind[task] is TaskKind.KERNEL:
            tasks[work.correlation].append(task)
    ops = [op for op in trace.ops if not op.is_label]
    owned: dict[int, tuple[HostOp | None, list[int]]] = {}
    calls = [call for call in trace.calls if call.correlation in tasks]
    for call, op in call_owners(calls, ops):
        own = tasks.pop(call.correlation, [])
        owned.setdefault(id(op), (op, []))[1].extend(own)
    for left in tasks.values():  # launched before the trace began
        owned.setdefault(id(None), (None, []))[1].extend(left)
    default = _default_dtype(ops)
    graph = RecordedGraph(trace.file, default)
    known: dict[RecordedOp, tuple[str, str]] = {}
    launches: list[OpLaunches] = []
    for op, own in owned.values():
        key, missing = _key(op, graph, known)
        tf32 = any(_TF32.search(recorded.works[task].name) for task in own)
        name = op.name if op else ""
        launches.append(OpLaunches(name, key, missing, tuple(sorted(own)), tf32))
    any_known = any(one.key for one in launches)
    return TraceOps(
        recorded,
        graph.program() if any_known else None,
        launches,
        default,
    )


def _key(
    op: HostOp | None, graph: RecordedGraph, known: dict[RecordedOp, tuple[str, str]]
) -> tuple[str, str]:
    """Return where an op is in the graph, or why it is not."""
    if op is None:
        return "", NO_OP
    call = op.recorded
    if call is None:
        return "", NO_INPUTS
    if call not in known:
        try:
            known[call] = graph.add(call), ""
        except NotRecordedError as error:
            known[call] = "", str(error)
    return known[call]


def _default_dtype(ops: Iterable[HostOp]) -> DType:
    """Return the element type that most tensors of numbers have."""
    found: Counter[DType] = Counter()
    for call in {op.recorded for op in ops}:
        tensors = () if call is None else call.arguments
        for tensor in tensors:
            if isinstance(tensor, RecordedTensor) and tensor.dtype is not None:
                found[tensor.dtype] += tensor.dtype.is_float
    dtype, count = max(found.items(), key=lambda item: item[1], default=(None, 0))
    return dtype if dtype is not None and count else DTYPES["f32"]
