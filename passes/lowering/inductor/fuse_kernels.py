"""The pass `fuse-kernels`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import ClassVar

import attrs

from perfc import ir
from perfc.costmodels.sheets import COMPILED_GRAPH, GRAPH_LAUNCH, as_known
from perfc.ir.launch import BUSY_KINDS, ResourceKind
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.support import PipelineError, VerifyError
from perfc.passes import graphs
from perfc.passes.base import Pass, PassContext
from perfc.passes.facts import ELEMENTS, LAUNCHES, TYPED
from perfc.passes.lowering.eager import DEVICE_SYNC, WORK_WAIT
from perfc.passes.lowering.inductor.fused_kernel import (
    LAUNCH_TRITON,
    fused_kernel,
    fused_name,
)
from perfc.passes.lowering.inductor.fusible import adds_bias_apart
from perfc.passes.lowering.inductor.fusion import Buffer, Group, fuse
from perfc.passes.lowering.inductor.fusion_steps import Stepping

_GRAPHS = {"forward": "forward", "loss": "forward", "backward": "backward"}
"""Phases that are compiled, and in which graph; the optimizer stays eager."""

_BREAKS = frozenset({"item"})
"""Ops at which a graph ends: the host needs a number (a "graph break")."""

_EAGER = 0
"""Number of what is not compiled."""

_GRAPH = ir.Record({"compiled": "graph"})


@attrs.frozen
class FuseKernels(Pass):
    """Launch what `torch.compile` would: loops and reductions fused into kernels.

    As Inductor does in its default mode, without CUDA graphs: elementwise ops are
    computed where they are read, loops and reductions that share memory become one
    generated kernel (`triton_…`), views and casts cost nothing. GEMMs,
    convolutions, attention, sorts, scatters and ops without a model stay the calls
    that they are. Forward and backward are compiled apart, and an op that reads a
    number back ends a graph; the optimizer stays eager.

    A generated kernel reads what enters it, each buffer at most once, and writes
    what somebody else reads. Its flops are those of its ops, each counted in the
    first kernel that computes it.
    """

    name: ClassVar[str] = "fuse-kernels"
    runtime: ClassVar[str] = "compiled"
    requires: ClassVar[frozenset[ir.AnyKey]] = frozenset({TYPED, ELEMENTS, LAUNCHES})
    provides: ClassVar[frozenset[ir.AnyKey]] = frozenset({LAUNCHES})

    def run(self, program: ir.Program, ctx: PassContext) -> None:
        """Fuse the launches of every rank class."""
        # SMs that are set by hand change no choice of kernels: as of the known GPU.
        known = None if ctx.system is None else as_known(ctx.system)
        sm_count = 0 if known is None else known.device.sm_count
        launches = ctx.get(LAUNCHES, program)
        fused: list[ir.LaunchGraph] = []
        for rank, graph in zip(program.classes, launches, strict=True):
            if rank.ops is None or rank.launches is not None:
                msg = (
                    f"{graph} is a launch graph, whose kernels are given; pass "
                    f"{self.name!r} (--runtime compiled) compiles op graphs only"
                )
                raise ir.PerfcError(msg)
            if any(op.name == GRAPH_LAUNCH for op in graph.ops):
                msg = f"pass {self.name!r} comes before capture-graph, not after it"
                raise PipelineError(msg)
            types = ctx.get(ELEMENTS, rank.ops).keys()
            compiling = _Compiling(rank.ops, graph, program.bindings, types, sm_count)
            fused.append(compiling.run())
        ctx.set(LAUNCHES, program, tuple(fused))


@attrs.define(eq=False)
class _Compiling:
    """Puts kernels of several ops in place of those of one.

    Attributes:
        ops: The op graph.
        source: What eager PyTorch launches.
        numbers: The numbers of the symbols.
        known: Values that are Python's numbers.
        sm_count: Of the device; 0 if it is not known.

    """

    ops: ir.Graph
    source: ir.LaunchGraph
    numbers: Mapping[str, int]
    known: Collection[ir.Value]
    sm_count: int
    _copy: graphs.LaunchCopy = attrs.field(init=False)
    _types: dict[ir.Value, ir.TensorType] = attrs.field(init=False)
    _launched: Mapping[ir.Node, list[int]] = attrs.field(init=False)
    _tasks: Mapping[int, list[int]] = attrs.field(init=False)
    _flops: dict[ir.Node, int] = attrs.field(factory=dict[ir.Node, int], init=False)

    def run(self) -> ir.LaunchGraph:
        """Return the launches of the compiled program."""
        source = self.source
        self._copy = graphs.LaunchCopy(source)
        found: dict[int, list[int]] = {op: [] for op in range(len(source.ops))}
        for task, op in enumerate(source.op):
            found[op].append(task)
        self._tasks = found
        inputs, self._launched, rest = _by_node(source, self.ops)
        self._types = {v: _typed(v).bind(self.numbers) for v in self.ops.values()}
        for node in self.ops:
            self._flops[node] = sum(k.work.flops for k in self._kernels_of(node))
        self._run_eagerly(inputs)
        for number, segments in groupby(_segments(self.ops), lambda s: s.graph):
            self._run_graph(number, [segment.nodes for segment in segments])
        self._run_eagerly(rest)
        return self._copy.result

    def _kernels_of(self, node: ir.Node) -> list[ir.Kernel]:
        source = self.source
        numbers = [source.kernel[task] for task in self._tasks_of((node,))]
        return [source.kernels[number] for number in numbers if number >= 0]

    def _run_eagerly(self, ops: Iterable[int]) -> None:
        """Copy ops as they are."""
        for op in ops:
            self._copy.result.add_op(self.source.ops[op])
            for task in self._tasks[op]:
                self._copy.add(task, kernel=self._interned(task))

    def _interned(self, task: int) -> int:
        number, kernels = self.source.kernel[task], self.source.kernels
        return -1 if number < 0 else self._copy.result.intern(kernels[number])

    def _run_graph(self, number: int, segments: Sequence[Sequence[ir.Node]]) -> None:
        """Compile the segments of one graph, or leave them to eager PyTorch."""
        if number == _EAGER:
            eager = [node for nodes in segments for node in nodes]
            self._run_eagerly(op for node in eager for op in self._launched[node])
            return
        # All segments are fused first: only then is it known whether the graph launches
        # anything, and its op, for which the host pays, comes before all kernels.
        compiled = [self._fused(nodes) for nodes in segments]
        if any(groups for groups, _ in compiled):
            self._copy.result.add_op(ir.LaunchOp(COMPILED_GRAPH, "", _GRAPH))
        for nodes, (groups, without_bias) in zip(segments, compiled, strict=True):
            # A buffer that no other kernel reads stays in registers and is not written.
            readers = Counter(b for group in groups for b in _read_buffers(group))
            for group in groups:
                node = group.outside
                if node is not None:
                    self._call(node, plain=node in without_bias)
                    continue
                kept = [b for b in group.writes if b.needed or readers[b]]
                self._generate(group, kept)
            self._run_eagerly(self._stated(nodes))
        # A node whose kernels vanished may have waited for a collective, or others may
        # wait for it: both kinds of edges have to survive for later kernels.
        every = [node for nodes in segments for node in nodes]
        self._await(every)
        self._note_vanished(every)

    def _stated(self, nodes: Iterable[ir.Node]) -> Iterator[int]:
        """Yield the ops that keep the host for as long as they state."""
        for node in nodes:
            if graphs.stated_host_s(node) is not None:
                yield from self._launched[node]

    def _fused(
        self, nodes: Sequence[ir.Node]
    ) -> tuple[list[Group], Container[ir.Node]]:
        """Return the kernels of consecutive nodes."""
        runs = frozenset(node for node in nodes if self._kernels_of(node))
        # The values that others than *nodes* read, or the graph returns.
        # Those that nobody reads are among them: a compiler would drop them, perfc
        # keeps what a model does.
        here, returned = frozenset(nodes), frozenset(self.ops.outputs)
        found: set[ir.Value] = set()
        for node in nodes:
            readers = {v: self.ops.readers(v) for v in node.results}
            unread = not any(readers.values())
            found |= {
                value
                for value, users in readers.items()
                if unread or value in returned or not here.issuperset(users)
            }
        outputs = frozenset(found)
        stepping = Stepping(
            self.ops, self._types, self.known, runs, outputs, self.sm_count
        )
        for node in nodes:
            if graphs.stated_host_s(node) is None:
                stepping.add(node)
        for node in nodes:
            for value in node.results:
                if value in outputs:
                    stepping.keep(value)
        return fuse(stepping.steps), stepping.without_bias

    def _call(self, node: ir.Node, *, plain: bool) -> None:
        """Call an outside kernel; a *plain* GEMM leaves its bias to a loop."""
        self._await((node,))
        for op in self._launched[node]:
            if self.source.ops[op].name == WORK_WAIT:
                continue
            tasks = self._tasks[op]
            if plain and adds_bias_apart(node):
                tasks = tasks[:-2]  # the call that adds the bias, and its kernel
            launched = self.source.ops[op]
            attributes = launched.attributes.updated(compiled="call")
            self._copy.result.add_op(attrs.evolve(launched, attributes=attributes))
            for task in tasks:
                self._copy.add(task, kernel=self._called(task, node, plain=plain))

    def _await(self, nodes: Iterable[ir.Node]) -> None:
        """Wait for the collectives that *nodes* read, once."""
        for node in nodes:
            for op in self._launched[node]:
                launched, tasks = self.source.ops[op], self._tasks[op]
                if launched.name != WORK_WAIT or tasks[0] in self._copy.moved:
                    continue
                attributes = launched.attributes.updated(compiled="call")
                self._copy.result.add_op(attrs.evolve(launched, attributes=attributes))
                for task in tasks:
                    self._copy.add(task)

    def _called(self, task: int, node: ir.Node, *, plain: bool) -> int:
        number = self.source.kernel[task]
        if number < 0:
            return -1
        kernel = self.source.kernels[number]
        if plain and kernel.params.flag("bias"):
            work, out = kernel.work, self._types[node.results[0]]
            flops = work.flops - int(out.numel)
            read = work.bytes_read - int(self._types[node.operands[-1]].nbytes)
            params = ir.Record({k: v for k, v in kernel.params.items() if k != "bias"})
            work = ir.Work(flops, read, work.bytes_written)
            kernel = attrs.evolve(kernel, params=params, work=work)
        self._flops[node] -= kernel.work.flops
        return self._copy.result.intern(kernel)

    def _generate(self, group: Group, kept: Sequence[Buffer]) -> None:
        """Launch one generated kernel."""
        nodes = group.nodes
        self._await(nodes)
        flops = sum(self._flops.pop(node, 0) for node in nodes)
        values = [buffer.value for buffer in kept if buffer.value is not None]
        keeps = tuple(dict.fromkeys(value.name for value in values))
        attributes: dict[str, ir.AttrValue] = {
            "compiled": "kernel",
            "nodes": tuple([node.name for node in nodes]),
            "keeps": keeps,
        }
        at = [*(node.name for node in nodes), *keeps][-1:]  # seeds are of no node
        result, source = self._copy.result, self.source
        op = result.add_op(
            ir.LaunchOp(fused_name(group), "".join(at), ir.Record(attributes))
        )
        task = result.launch(
            ir.TaskKind.KERNEL,
            _first(source, ResourceKind.THREAD),
            _first(source, ResourceKind.STREAM),
            op=op,
            kernel=result.intern(fused_kernel(group, kept, flops)),
            call=LAUNCH_TRITON,
        )
        for old in self._tasks_of(nodes):  # who waited for them waits for this one
            self._copy.moved.setdefault(old, task)

    def _note_vanished(self, nodes: Iterable[ir.Node]) -> None:
        """Let those who waited for what runs no more wait for what ran last."""
        kinds = self._copy.result.kind
        last = (t for t in reversed(range(len(kinds))) if kinds[t] in BUSY_KINDS)
        found = next(last, None)
        if found is not None:
            for task in self._tasks_of(nodes):
                self._copy.moved.setdefault(task, found)

    def _tasks_of(self, nodes: Iterable[ir.Node]) -> Iterator[int]:
        for node in nodes:
            for op in self._launched[node]:
                yield from self._tasks[op]


@attrs.frozen(eq=False)
class _Segment:
    """Consecutive nodes that may be fused with each other.

    Attributes:
        graph: Number of the compiled graph, or `_EAGER`.
        nodes: The nodes.

    """

    graph: int
    nodes: list[ir.Node]


def _segments(graph: ir.Graph) -> Iterator[_Segment]:
    """Cut a graph where the phase changes, the host reads, or memory is written.

    Nothing moves across a write: what reads the old contents stays before it. Nor
    does it across a collective, or where the host stands still: the order of issue is
    that of the model.
    """
    number, phase = 0, ""
    segment = _Segment(_EAGER, [])
    for node in graph:
        # After a break, or in another phase, a new compiled graph begins, whose guards
        # and wrapper cost the host again. A write only bounds what may be fused within
        # the same graph.
        found = "" if node.op in _BREAKS else _GRAPHS.get(node.location.phase, "")
        if found != phase:
            number += 1
        opdef = BUILTIN_OPS.find(node.op)
        writes = graphs.is_issued_in_order(node) or (
            opdef is not None and bool(opdef.mutates)
        )
        writes = writes or graphs.stated_host_s(node) is not None
        if found != phase or writes:
            yield segment
            segment = _Segment(number if found else _EAGER, [])
        segment.nodes.append(node)
        if writes:  # a segment of its own: later nodes read the new contents
            yield segment
            segment = _Segment(segment.graph, [])
        phase = found
    yield segment


def _by_node(
    graph: ir.LaunchGraph, ops: ir.Graph
) -> tuple[list[int], Mapping[ir.Node, list[int]], list[int]]:
    """Return the ops before the nodes, of each node, and after them.

    Ops stand in the order of the nodes. Neighbours without a name are one.
    """
    names = [op.node for op in graph.ops]
    end = len(names) - (graph.ops[-1].name == DEVICE_SYNC if names else 0)
    known = {node.name for node in ops}
    place = next((i for i in range(end) if names[i] in known), end)
    before = list(range(place))
    found: dict[ir.Node, list[int]] = {}
    for node in ops:
        start, name = place, node.name
        while place < end and names[place] == name:
            place += 1
        found[node] = list(range(start, place))
    return before, found, list(range(place, len(names)))


def _read_buffers(group: Group) -> set[Buffer]:
    """Return the buffers of others that a kernel reads."""
    return {read.buffer for read in group.reads}


def _first(graph: ir.LaunchGraph, kind: ResourceKind) -> int:
    return next(i for i, r in enumerate(graph.resources) if r.kind is kind)


def _typed(value: ir.Value) -> ir.TensorType:
    if value.type is None:
        msg = f"value {value} has no type; run shape-inference first"
        raise VerifyError(msg)
    return value.type
