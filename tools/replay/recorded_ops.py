"""What a trace's ops launched: one op graph of all of them, and who made which task."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs

from perfc.frontends.aten import NotRecordedError, RecordedGraph
from perfc.ir import DTYPES, DType, Program, TaskKind
from perfc.traces import Recorded, RecordedOp, RecordedTensor
from perfc.traces.events import HostOp
from perfc.traces.owners import call_owners, op_parents

NO_OP = "no op around the launch"
NO_INPUTS = "its arguments are not recorded"

_TF32 = re.compile(r"tf32|tensorop_s1688(gemm|fprop|dgrad|wgrad)_\d")
"""Kernels of CUTLASS and cuDNN that multiply fp32 in TF32 say so."""

_CONVOLUTION = re.compile(
    r"aten::_?(?:(?:cudnn|miopen|mkldnn|slow|thnn)_)?"
    r"conv(?:olution|_transpose|_depthwise)?(?:[123]d)?(?:_|$)"
)
"""Ops as `aten::conv2d`, `aten::cudnn_convolution`, `aten::convolution_backward`."""


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

    @property
    def is_convolution(self) -> bool:
        """Whether the op convolves, forward or backward."""
        return _CONVOLUTION.match(self.op) is not None

    def takes_tf32(self, *, convolutions: bool) -> bool:
        """Whether it uses TF32 where its kernels say so, or all *convolutions* do."""
        return self.uses_tf32 or (convolutions and self.is_convolution)


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
    """Find out which op launched what, and lower each distinct call once.

    Kernels of which the trace has the signature need no op to be priced.
    """
    trace = recorded.trace
    tasks: dict[int, list[int]] = defaultdict(list)
    for task, work in recorded.works.items():
        if recorded.graph.kind[task] is TaskKind.KERNEL and work.signature is None:
            tasks[work.correlation].append(task)
    ops = [op for op in trace.ops if not op.is_label]
    default = _default_dtype(ops)
    known = _Known(RecordedGraph(trace.file, default), op_parents(ops))
    known.learn(ops)
    owned: dict[int, tuple[HostOp | None, list[int]]] = {}
    calls = [call for call in trace.calls if call.correlation in tasks]
    for call, op in call_owners(calls, ops, known.parents):
        own = tasks.pop(call.correlation, [])
        owned.setdefault(id(op), (op, []))[1].extend(own)
    for left in tasks.values():  # launched before the trace began
        owned.setdefault(id(None), (None, []))[1].extend(left)
    launches: list[OpLaunches] = []
    for op, own in known.merged(owned.values()):
        key, missing = known.key(op)
        tf32 = any(_TF32.search(recorded.works[task].name) for task in own)
        name = op.name if op else ""
        launches.append(OpLaunches(name, key, missing, tuple(sorted(own)), tf32))
    any_known = any(one.key for one in launches)
    program = known.graph.program() if any_known else None
    return TraceOps(recorded, program, launches, default)


_Owned: TypeAlias = "tuple[HostOp | None, list[int]]"
"""An op, None for none, and the tasks that it launched."""


@attrs.define(eq=False)
class _Known:
    """Calls by where they are in an op graph, or why they are not in it.

    Attributes:
        graph: The op graph.
        parents: The op around each op.

    """

    graph: RecordedGraph
    parents: Mapping[int, HostOp | None]
    _keys: dict[RecordedOp, tuple[str, str]] = attrs.field(
        factory=dict[RecordedOp, "tuple[str, str]"], init=False
    )

    def learn(self, ops: Iterable[HostOp]) -> None:
        """Let the graph know what calls tell of others."""
        for call in {op.recorded for op in ops if "backward" in op.name}:
            if call is not None:
                self.graph.learn(call)

    def key(self, op: HostOp | None) -> tuple[str, str]:
        """Return where an op is in the graph, or why it is not."""
        if op is None:
            return "", NO_OP
        call = op.recorded
        if call is None:
            return "", NO_INPUTS
        if call not in self._keys:
            try:
                self._keys[call] = self.graph.add(call), ""
            except NotRecordedError as error:
                self._keys[call] = "", str(error)
        return self._keys[call]

    def merged(self, owned: Iterable[_Owned]) -> list[_Owned]:
        """Give what an op launched to a known one around it that is priced whole."""
        groups = {id(op): (op, [*own]) for op, own in owned}
        whole = {i for i, (op, _) in groups.items() if self.key(op)[0]}
        taken = {
            id(around)
            for i in whole
            for op, _ in [groups[i]]
            for around in self._around(op)
        }
        for op, own in [*groups.values()]:
            outer = self._outer(op, whole, taken)
            if outer is not None:
                groups.setdefault(id(outer), (outer, []))[1].extend(own)
                del groups[id(op)]
        return [*groups.values()]

    def _outer(
        self, op: HostOp | None, whole: Collection[int], taken: Collection[int]
    ) -> HostOp | None:
        """Return the known op around one that is priced with all that is in it.

        One that launches something itself; or, around what is not known, the next one
        in which nothing else is.
        """
        around = [*self._around(op)]
        launching = [outer for outer in around if id(outer) in whole]
        if launching or id(op) in whole:
            return launching[-1] if launching else None
        known = next((outer for outer in around if self.key(outer)[0]), None)
        return None if known is None or id(known) in taken else known

    def _around(self, op: HostOp | None) -> Iterator[HostOp]:
        outer = None if op is None else self.parents[id(op)]
        while outer is not None:
            yield outer
            outer = self.parents[id(outer)]


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
