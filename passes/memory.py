"""The pass `memory`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import attrs

from perfc.costmodels import Target
from perfc.ir import (
    BUILTIN_OPS,
    BUSY_KINDS,
    AnyKey,
    Graph,
    LaunchGraph,
    MemorySpace,
    Node,
    Program,
    TensorType,
    Value,
)
from perfc.passes.base import Pass, PassContext
from perfc.passes.eager import SCRATCH as SCRATCH_TASK
from perfc.passes.eager_launches import FREE
from perfc.passes.eager_memory import SCRATCH, blas_workspace_bytes
from perfc.passes.facts import LAUNCHES, TYPED
from perfc.passes.memory_use import LASTING, MEMORY, Buffer, BufferKind, MemoryUse

_BLAS = "gemm"
"""Canonical name of the kernels that make PyTorch allocate the workspace."""


@attrs.frozen
class Memory(Pass):
    """Find how much device memory one iteration takes, where it peaks, and why.

    Eager PyTorch allocates when the host runs an op and frees when nobody can read a
    tensor any more: a result lives from its node to the last node that reads it or
    a view of it, inputs and outputs live throughout, and what an op needs besides
    its results lives as long as the op. An op that launches nothing makes a view; a
    written operand and the result are one storage. Parameters, the constants that
    kernels read, and the BLAS workspace (with a target) stay.

    Not counted: the CUDA context, cuDNN's workspaces, what Python keeps longer than
    the graph needs it. A rank class given as a launch graph has no tensors: zeros.
    """

    name: ClassVar[str] = "memory"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, LAUNCHES})
    provides: ClassVar[frozenset[AnyKey]] = frozenset({MEMORY})

    def run(self, program: Program, ctx: PassContext) -> None:
        """Look at every rank class."""
        launches = ctx.get(LAUNCHES, program)
        uses: list[MemoryUse] = []
        for rank, graph in zip(program.classes, launches, strict=True):
            if rank.ops is None or rank.launches is not None:
                uses.append(MemoryUse())
                continue
            storages = _Storages(rank.ops, graph, program.bindings)
            buffers = storages.buffers(ctx.system)
            uses.append(_use(storages.nodes, buffers))
        ctx.set(MEMORY, program, tuple(uses))


@attrs.frozen(eq=False)
class _Launched:
    """What the launches of a node say.

    Attributes:
        runs: Whether it has a task on the device: then its results are new.
        scratch: Sizes of the buffers that its kernels fill besides them.

    """

    runs: bool = False
    scratch: tuple[int, ...] = ()


_NOTHING = _Launched()


def _launched(graph: LaunchGraph) -> dict[str, _Launched]:
    """Return what the launches of each node say, by the name of the node."""
    scratch: defaultdict[int, list[int]] = defaultdict(list)
    runs: set[int] = set()
    columns = zip(graph.op, graph.kind, graph.kernel, graph.detail, strict=True)
    for op, kind, kernel, detail in columns:
        if kind in BUSY_KINDS:
            runs.add(op)
            if detail == SCRATCH_TASK and kernel >= 0:
                scratch[op].append(graph.kernels[kernel].work.bytes_written)
    return {
        launched.node: _Launched(op in runs, tuple(scratch.get(op, ())))
        for op, launched in enumerate(graph.ops)
        if launched.node
    }


@attrs.define(eq=False)
class _Storages:
    """Which storage every value of a graph has, and from when to when.

    Attributes:
        graph: The op graph.
        launches: What it launches.
        bindings: The numbers of the symbols.
        nodes: Its nodes, in order.
        owner: The value whose storage a value has; None where it has none.

    """

    graph: Graph
    launches: LaunchGraph
    bindings: Mapping[str, int]
    nodes: Sequence[Node] = attrs.field(init=False)
    owner: dict[Value, Value | None] = attrs.field(
        factory=dict["Value", "Value | None"], init=False
    )
    _types: dict[TensorType, TensorType] = attrs.field(
        factory=dict[TensorType, TensorType], init=False
    )
    _sizes: dict[TensorType, int] = attrs.field(
        factory=dict[TensorType, int], init=False
    )
    _launched: dict[Node, _Launched] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.nodes = list(self.graph)
        launched = _launched(self.launches)
        self._launched = {n: launched.get(_name(n), _NOTHING) for n in self.nodes}

    def buffers(self, target: Target | None) -> list[Buffer]:
        """Return the storages, in the order in which they are allocated."""
        made = self._made()
        constants = self._constants()
        last = self._last_reads()
        end = len(self.nodes)
        lasting = [(v, BufferKind.PARAMETER) for v in self.graph.parameters]
        lasting += [(v, BufferKind.CONSTANT) for v in constants]
        lasting += [(v, BufferKind.INPUT) for v in self.graph.inputs]
        found = [self._buffer(v, kind, -1, end) for v, kind in lasting]
        if target is not None and any(k.op == _BLAS for k in self.launches.kernels):
            size = blas_workspace_bytes(target.device)
            found.append(Buffer("BLAS workspace", BufferKind.LIBRARY, size, -1, end))
        for index, node in enumerate(self.nodes):
            found += self._scratch(index, node)
            for value in made.get(node, ()):
                until = last.get(value, index)
                found.append(self._buffer(value, BufferKind.ACTIVATION, index, until))
        return [buffer for buffer in found if buffer.nbytes]

    def _made(self) -> dict[Node, list[Value]]:
        """Find the owner of every value; return what each node allocates."""
        made: dict[Node, list[Value]] = {}
        for node in self.nodes:
            source = self._aliased(node)
            for value in node.results:
                if source is not None:
                    self.owner[value] = self._owner(source)
                elif self._launched[node].runs:
                    made.setdefault(node, []).append(value)
                else:
                    self.owner[value] = None
        return made

    def _aliased(self, node: Node) -> Value | None:
        """Return the operand whose storage the results have, if they are not new."""
        if node.op in FREE or not node.operands:
            return None
        opdef = BUILTIN_OPS.find(node.op)
        if opdef is not None and opdef.mutates:
            return node.operands[opdef.mutates[0]]
        if self._launched[node].runs:
            return None
        view = opdef.view if opdef is not None else None
        return node.operands[view or 0]

    def _owner(self, value: Value) -> Value | None:
        return self.owner.get(value, value)

    def _constants(self) -> list[Value]:
        """Return the constants that kernels read; PyTorch passes single numbers."""
        found: dict[Value, None] = {}
        for node in self.nodes:
            if not self._launched[node].runs:
                continue
            for value in node.operands:
                source = value.producer
                is_constant = source is not None and source.op == "constant"
                if is_constant and value.type is not None and value.type.rank:
                    found[value] = None
        return list(found)

    def _last_reads(self) -> dict[Value, int]:
        last: dict[Value, int] = {}
        for index, node in enumerate(self.nodes):
            for value in _reads(node):
                owner = self._owner(value)
                if owner is not None:
                    last[owner] = index
        for value in self.graph.outputs:
            owner = self._owner(value)
            if owner is not None:
                last[owner] = len(self.nodes)
        return last

    def _scratch(self, index: int, node: Node) -> Iterator[Buffer]:
        found = self._launched[node]
        if not found.runs:
            return
        rule = SCRATCH.get(node.op)
        sizes = [*found.scratch]
        if rule is not None:
            operands = tuple([self._type(v) for v in node.operands])
            results = tuple([self._type(v) for v in node.results])
            sizes.append(rule(node.attributes, operands, results))
        for size in sizes:
            yield Buffer(_name(node), BufferKind.SCRATCH, size, index, index)

    def _buffer(self, value: Value, kind: BufferKind, first: int, last: int) -> Buffer:
        assert value.type is not None  # noqa: S101 - the fact TYPED says so
        size = self._sizes.get(value.type)
        if size is None:
            type_ = self._type(value)
            on_device = type_.space is MemorySpace.DEVICE
            size = self._sizes[value.type] = int(type_.nbytes) if on_device else 0
        return Buffer(value.name, kind, size, first, last)

    def _type(self, value: Value) -> TensorType:
        assert value.type is not None  # noqa: S101 - the fact TYPED says so
        found = self._types.get(value.type)
        if found is None:
            found = self._types[value.type] = value.type.bind(self.bindings)
        return found


def _name(node: Node) -> str:
    """Return what launches, and reports, call a node."""
    return node.results[0].name if node.results else node.location.name or node.op


def _reads(node: Node) -> Iterator[Value]:
    """Yield what a node reads, also within its regions."""
    yield from node.operands
    for region in node.regions:
        yield from region.outputs
        for inner in region:
            yield from _reads(inner)


def _use(nodes: Sequence[Node], buffers: Sequence[Buffer]) -> MemoryUse:
    """Add the buffers up along the nodes."""
    grown, freed = [0] * (len(nodes) + 1), [0] * (len(nodes) + 2)
    for buffer in buffers:
        size = buffer.allocated_bytes
        grown[buffer.first + 1] += size
        freed[buffer.last + 1] += size
    during, after = [grown[0]], [grown[0]]
    for made, gone in zip(grown[1:], freed[1:-1], strict=True):
        during.append(after[-1] + made)
        after.append(during[-1] - gone)
    peak = during.index(max(during)) - 1
    live = [b for b in buffers if b.first <= peak <= b.last]
    live.sort(key=lambda buffer: (-buffer.nbytes, buffer.first, buffer.name))
    at = nodes[peak] if peak >= 0 else None
    return MemoryUse(
        parameters_bytes=_sum(live, {BufferKind.PARAMETER, BufferKind.CONSTANT}),
        activations_bytes=_sum(live, frozenset(BufferKind) - LASTING),
        library_bytes=_sum(live, {BufferKind.LIBRARY}),
        node=_name(at) if at is not None else "",
        phase=at.location.phase if at is not None else "",
        live=live,
        nodes=[_name(node) for node in nodes],
        during_bytes=during[1:],
        after_bytes=after[1:],
        buffers=buffers,
    )


def _sum(
    buffers: Sequence[Buffer], kinds: frozenset[BufferKind] | set[BufferKind]
) -> int:
    return sum(b.allocated_bytes for b in buffers if b.kind in kinds)
