"""Execution traces of PyTorch (`ExecutionTraceObserver`): ops and tensors, no times.

JSON as PyTorch writes it, or protocol buffers as Chakra makes of it.

Schema 1.0.x (`torch/csrc/profiler/standalone/execution_trace_observer.cpp`): a list of
nodes with what each op was given and what it returned, in the order in which they were
finished; `rf_id` is the order in which they began.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import attrs

from perfc.ir import DTYPES, Diagnostic
from perfc.ir.support import Level
from perfc.traces import inputs
from perfc.traces.chakra import ChakraFile, is_chakra
from perfc.traces.events import HostOp, Thread, Trace, TraceError
from perfc.traces.json_stream import EventFile

_NODES = "nodes"
_CHAKRA = (".et", ".et.gz")
_HEAD_CHARACTERS = 4096
_LISTS = re.compile(rb'"(nodes|traceEvents)"\s*:\s*\[')
_SCHEMA = re.compile(r"1\.\d+\.")
_TENSOR = re.compile(r"Tensor\(((?:[^()]|\([^()]*\))*)\)|None")
_UNDEFINED = "nullptr"
_NONE = "<None>"


@attrs.frozen
class ExecutedOp:
    """One call of one op.

    Attributes:
        number: Its number in the file.
        order: Its place among all ops, by when they began.
        parent: Number of the op that it ran in.
        call: What it is, with arguments and results.
        reads: Numbers of the tensors among its arguments, in order; the number of one
            tensor can be that of another later on.
        makes: Numbers of the tensors that it returned.

    """

    number: int
    order: int
    parent: int
    call: inputs.RecordedOp
    reads: tuple[int, ...]
    makes: tuple[int, ...]


@attrs.frozen(eq=False)
class ExecutionTrace:
    """An execution trace.

    Attributes:
        file: Where it was read.
        threads: Ops of each thread in the order in which they began.
        collectives: What Chakra says of collectives on the device: name, bytes, group.

    """

    file: str
    threads: Mapping[int, Sequence[ExecutedOp]]
    collectives: Sequence[str] = ()


def is_execution_trace(path: str | Path) -> bool:
    """Whether a file is an execution trace, by how it begins; False if unreadable."""
    head = EventFile(Path(path)).head(_HEAD_CHARACTERS)
    found = _LISTS.search(head)
    if found is None:
        return str(path).endswith(_CHAKRA) or is_chakra(Path(path))
    return found[1] == _NODES.encode()


def read_execution_trace(path: str | Path) -> ExecutionTrace:
    """Read an execution trace, `.json` or Chakra's `.et`, gzipped or not."""
    chakra = str(path).endswith(_CHAKRA) or is_chakra(Path(path))
    file = ChakraFile(Path(path)) if chakra else EventFile(Path(path), _NODES)
    threads: dict[int, list[ExecutedOp]] = defaultdict(list)
    collectives: list[str] = []
    for node in file.events():
        if node.get("collective"):
            collectives.append(str(node["collective"]))
        if node.get("is_cpu_op") is False:  # Chakra has kernels, too
            continue
        order, thread = _field(node, "rf_id", 0), _field(node, "tid", 0)
        if not isinstance(order, int) or not isinstance(thread, int):
            msg = f"{path}: node {node.get('id')!r}: rf_id and tid are no numbers"
            raise TraceError(msg)
        if order > 0:  # the others are processes and threads
            threads[thread].append(_executed(node, order, str(path)))
    schema = str(file.header.get("schema", ""))
    if not _SCHEMA.match(schema):
        found = f"schema {schema!r} of execution traces" if schema else "no schema"
        msg = f"{path}: {found}; expected 1.0.x, as of PyTorch"
        raise TraceError(msg)
    if not threads:
        msg = f"{path}: an execution trace without ops"
        raise TraceError(msg)
    ordered = {
        thread: sorted(ops, key=lambda op: op.order)
        for thread, ops in sorted(threads.items())
    }
    return ExecutionTrace(str(path), ordered, collectives)


def _executed(node: Mapping[str, object], order: int, file: str) -> ExecutedOp:
    """Take a node apart.

    Newer versions have inputs and outputs in records of their own, and the call of an
    op around it is a dependence of control.
    """
    given, made = _side(node, "input"), _side(node, "output")
    number, parent = node.get("id"), node.get("parent", node.get("ctrl_deps"))
    if not isinstance(number, int) or not isinstance(parent, int):
        msg = f"{file}: node {number!r}: id and parent are no numbers"
        raise TraceError(msg)
    schema = str(_field(node, "op_schema", ""))
    head, _, rest = schema.partition("(")
    results = [_tensors(*place) for place in made.places()]
    call = inputs.RecordedOp(
        str(node.get("name", "")),
        tuple(_argument(*place) for place in given.places()),
        head.partition(".")[2] or "default",
        tuple(one for tensors in results for one in tensors if one is not None),
        _names(rest),
    )
    return ExecutedOp(number, order, parent, call, _numbers(given), _numbers(made))


class _Side(NamedTuple):
    """Arguments or results, by place; lists that are shorter tell nothing."""

    values: list[object]
    shapes: list[object]
    types: list[object]
    strides: list[object]

    def places(self) -> Iterator[tuple[object, object, object, object]]:
        """Yield value, shape, type and strides of each."""
        count = min(map(len, self[:3]))
        missing: list[object] = [None] * (count - len(self.strides))
        yield from zip(
            self.values, self.shapes, self.types, self.strides + missing, strict=False
        )


def _side(node: Mapping[str, object], name: str) -> _Side:
    whole = node.get(f"{name}s")
    if isinstance(whole, dict):
        record = cast("dict[str, object]", whole)
        return _Side(*(inputs.listed(record.get(part)) for part in _Side._fields))
    parts = (whole, *(node.get(f"{name}_{part}") for part in _Side._fields[1:]))
    return _Side(*map(inputs.listed, parts))


def _field(node: Mapping[str, object], name: str, default: object) -> object:
    """Return a field of a node, which newer versions have in a list of attributes."""
    if name in node:
        return node[name]
    for one in inputs.listed(node.get("attrs")):
        record = cast("dict[str, object]", one) if isinstance(one, dict) else {}
        if record.get("name") == name:
            return record.get("value", default)
    return default


def _names(arguments: str) -> tuple[str, ...]:
    """Return the names of arguments from the text of a schema behind its `(`."""
    inside, depth = arguments.rpartition(" -> ")[0].rstrip(")"), 0
    words: list[str] = [""]
    for character in inside:
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            words.append("")
        else:
            words[-1] += character
    named = [word.partition("=")[0].split() for word in words]
    return tuple(parts[-1] for parts in named if len(parts) > 1)


def _argument(
    value: object, shape: object, kind: object, strides: object
) -> inputs.RecordedArgument:
    if "Tensor(" not in str(kind):
        return inputs.frozen(value)
    found = _tensors(value, shape, kind, strides)
    if not _is_one(kind):
        return found
    return found[0] if found else None


def _is_one(kind: object) -> bool:
    return str(kind).startswith("Tensor(")


def _tensors(
    value: object, shape: object, kind: object, strides: object
) -> tuple[inputs.RecordedTensor | None, ...]:
    """Return the tensors of an argument, one or those of a list; None for undefined."""
    return tuple(tensor for _, tensor in _numbered(value, shape, kind, strides))


def _numbered(
    value: object, shape: object, kind: object, strides: object
) -> Iterator[tuple[int, inputs.RecordedTensor | None]]:
    """Yield the numbers of tensors, and what they are."""
    names = _TENSOR.findall(str(kind))
    parts = [[part] for part in (value, shape, strides)]
    if not _is_one(kind):
        parts = [inputs.listed(part) for part in (value, shape, strides)]
        parts[2] += [None] * (len(parts[1]) - len(parts[2]))
    for tensor, dims, steps, name in zip(*parts, names, strict=False):
        identity = [*inputs.listed(tensor), None]
        absent = not name or name.startswith(_UNDEFINED)
        if absent or not isinstance(identity[0], int):
            yield -1, None
            continue
        dtype = (
            DTYPES[inputs.ELEMENT_TYPES[name]] if name in inputs.ELEMENT_TYPES else None
        )
        on_host = identity[-2] == "cpu"
        found = (
            inputs.whole_numbers(dims),
            dtype,
            inputs.whole_numbers(steps) or None,
            on_host,
        )
        yield identity[0], inputs.RecordedTensor(*found)


def _numbers(side: _Side) -> tuple[int, ...]:
    numbered = (pair for place in side.places() for pair in _numbered(*place))
    return tuple(number for number, tensor in numbered if tensor is not None)


def describe(trace: Trace, execution: ExecutionTrace) -> Trace:
    """Return the Kineto trace with what the execution trace says of its ops.

    Both list the ops of a thread in the order in which they began. The ops of one
    iteration may be there several times; each time they are the same.
    """
    ours: dict[Thread, list[HostOp]] = defaultdict(list)
    for op in trace.ops:
        ours[op.thread].append(op)
    for line in ours.values():
        if all(op.number >= 0 for op in line):  # clocks of old traces tick once a us
            line.sort(key=lambda op: op.number)
    known = {op.name for op in trace.ops}
    count = sum(
        _described(line, [op for op in ops if op.call.name in known])
        for ops in execution.threads.values()
        for line in ours.values()
    )
    if not count:
        msg = (
            f"{execution.file}: of another run than {trace.file}: no thread of it runs "
            "the same ops in the same order"
        )
        raise TraceError(msg)
    message = (
        f"arguments of {count} of {len(trace.ops)} ops are those of {execution.file}"
    )
    note = Diagnostic(Level.NOTE, "execution-trace", message, trace.file)
    missing = "trace-no-shapes"
    kept = [found for found in trace.diagnostics if found.code != missing]
    return attrs.evolve(trace, diagnostics=(*kept, note))


def _described(line: Sequence[HostOp], ops: Sequence[ExecutedOp]) -> int:
    """Give arguments to ops wherever a thread's ops all are; return to how many."""
    names = [op.call.name for op in ops]
    inside = {*names}
    found = [op for op in line if op.name in inside]
    count = position = 0
    while names and position + len(names) <= len(found):
        piece = found[position : position + len(names)]
        if piece[0].name != names[0] or [op.name for op in piece] != names:
            position += 1
            continue
        for host, executed in zip(piece, ops, strict=True):
            host.inputs = executed.call
        count += len(piece)
        position += len(names)
    return count
