"""Execution traces of PyTorch as op graphs: what one iteration ran, with its shapes."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from perfc import traces
from perfc.frontends import aten
from perfc.ir import DTYPES, Diagnostic, Program, TensorType
from perfc.ir.location import Location
from perfc.ir.support import Level, UnsupportedModelError, printable
from perfc.traces.execution_trace import ExecutedOp
from perfc.traces.inputs import UNRECORDED

_DEFAULT = DTYPES["f32"]
_COLLECTIVES = ("record_param_comms", "nccl:", "rccl:", "gloo:", "c10d::")
_BACKWARD = "autograd::engine::"
_WHY = "collectives of execution traces are left out"
_WRAPPERS = (
    "detach",
    _BACKWARD,
    "torch::autograd::AccumulateGrad",
    "Optimizer.",
    "## ",
)
_OF_AUTOGRAD = ("Backward0", "Backward1", "Backward2")
_TRIVIAL = (
    *("empty", "as_strided", "view", "reshape", "expand", "resize", "set", "copy"),
    *("fill", "zero", "detach", "select", "slice", "t", "transpose", "permute"),
    *("unsqueeze", "squeeze", "contiguous", "clone", "to", "_to_copy", "narrow"),
    *("alias", "item", "is_nonzero", "_local_scalar_dense", "result_type", "unbind"),
    *("lift_fresh", "split", "chunk", "_unsafe_view", "_reshape_alias", "size"),
    *("empty_like", "empty_strided", "new_empty", "new_empty_strided"),
    *("split_with_sizes", "flatten", "unflatten", "numpy_T", "movedim", "resize_as"),
)
"""Ops that others call to make room, to view and to copy: an op that calls nothing else
computes by itself."""

_OF_THE_MACHINE = frozenset(
    ("dtype", "layout", "device", "pin_memory", "memory_format", "generator")
)
"""Arguments that the results tell already."""


@attrs.frozen
class ExecutionTraceFrontend:
    """Reads what `torch.profiler.ExecutionTraceObserver` writes, and Chakra's `.et`."""

    def load(self, path: Path) -> Program:
        """Read an execution trace into a program.

        Of calls within calls the innermost that compute are taken. What is read before
        it is written lies on its device as parameters do.
        """
        if not traces.is_execution_trace(path):
            msg = (
                f"{path}: expected an execution trace of PyTorch; Kineto traces and "
                "reports of perfc are no models: replay, rescale and diff read them"
            )
            raise UnsupportedModelError(msg)
        trace = traces.read_execution_trace(path)
        every = [op for ops in trace.threads.values() for op in ops]
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        name = (
            printable(path.name)
            .removesuffix(".gz")
            .removesuffix(".json")
            .removesuffix(".et")
        )
        importing = _Importing(
            aten.AtenBuilder(name), sorted(every, key=lambda op: op.order)
        )
        importing.leave_out(trace.collectives)
        return importing.program(str(path), digest)


@attrs.define(eq=False)
class _Importing:
    """Writes the ops of one trace."""

    builder: aten.AtenBuilder
    ops: Sequence[ExecutedOp]
    _children: dict[int, list[ExecutedOp]] = attrs.field(init=False)
    _names: dict[int, tuple[str, TensorType]] = attrs.field(
        factory=dict[int, "tuple[str, TensorType]"], init=False
    )
    _made: int = attrs.field(default=0, init=False)
    _unread: dict[str, None] = attrs.field(factory=dict[str, None], init=False)
    _left_out: Counter[str] = attrs.field(factory=Counter[str], init=False)

    def leave_out(self, calls: Iterable[str]) -> None:
        """Say that these are left out."""
        self._left_out.update(calls)

    def program(self, file: str, digest: str) -> Program:
        """Write every op that computes, in the order in which they began."""
        self._children = defaultdict(list)
        for op in self.ops:
            self._children[op.parent].append(op)
        numbers = {op.number for op in self.ops}
        for op in self.ops:
            if op.parent not in numbers:
                self._write(op, phase="forward")
        if not self._unread:
            msg = f"{file}: no op of it computes a tensor"
            raise UnsupportedModelError(msg)
        self.builder.outputs(self._unread)  # all that ran counts, read or not
        notes = [
            Diagnostic(Level.WARNING, "left-out", f"{n} calls of {name}: {_WHY}")
            for name, n in sorted(self._left_out.items())
        ]
        return self.builder.program(sha256=digest, diagnostics=notes)

    def _write(self, op: ExecutedOp, phase: str) -> None:
        if op.call.name.startswith(_BACKWARD):
            phase = "backward"
        inner = self._children[op.number]
        if op.call.name.startswith(_COLLECTIVES):
            self._left_out[op.call.name] += 1
        elif any(map(self._computes, inner)) or not _is_call(op):
            for one in inner:
                self._write(one, phase)
        else:
            self._call(op, phase)

    def _computes(self, op: ExecutedOp) -> bool:
        name = op.call.name.partition("::")[2].removesuffix("_")
        if _is_call(op) and name not in _TRIVIAL:
            return True
        return any(map(self._computes, self._children[op.number]))

    def _call(self, op: ExecutedOp, phase: str) -> None:
        numbers = iter(op.reads)
        names = op.call.names or tuple(map(str, range(len(op.call.arguments))))
        given = [
            (name, self._argument(argument, numbers))
            for name, argument in zip(names, op.call.arguments, strict=False)
        ]
        arguments: Mapping[str, aten.Argument] = {
            name: value
            for name, value in given
            if value is not None and name not in _OF_THE_MACHINE
        }
        made: list[aten.AtenTensor] = []
        for number, tensor in zip(op.makes, op.call.results, strict=False):
            self._made += 1
            type_ = tensor.type(_DEFAULT)
            made.append(aten.AtenTensor(f"t{self._made}", type_, tensor.strides))
            self._names[number] = (made[-1].name, type_)
        location = Location(name=f"n{op.number}", phase=phase)
        target = _target(op)
        self.builder.call(aten.AtenCall(target, arguments, tuple(made), location))
        self._unread |= {tensor.name: None for tensor in made}

    def _argument(
        self, argument: traces.RecordedArgument, numbers: Iterator[int]
    ) -> aten.Argument:
        if isinstance(argument, traces.RecordedTensor):
            # The name of a tensor; one that nothing has made is a parameter.
            # Numbers are used again: a tensor of another type is another one.
            number = next(numbers)
            type_ = argument.type(_DEFAULT)
            name, known = self._names.get(number, ("", None))
            if known != type_:
                self._made += 1
                name = f"p{self._made}"
                self.builder.parameter(aten.AtenTensor(name, type_, argument.strides))
                self._names[number] = (name, type_)
            self._unread.pop(name, None)
            return aten.Ref(name)
        if isinstance(argument, tuple):
            return tuple(self._argument(item, numbers) for item in argument)
        return None if argument is UNRECORDED else argument


def _target(op: ExecutedOp) -> str:
    namespace, _, name = op.call.name.rpartition("::")
    return f"{namespace or 'unknown'}.{name}.{op.call.overload}"


def _is_call(op: ExecutedOp) -> bool:
    """Whether an op does something itself: perfc knows it, or it is given tensors.

    Nodes of autograd do what the ops in them do, those of an extension apart.
    """
    if aten.find_handler(_target(op)) is not None:
        return True
    name = op.call.name
    wraps = name.startswith(_WRAPPERS) or name.endswith(_OF_AUTOGRAD)
    return not wraps and bool(op.reads)
