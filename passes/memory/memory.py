"""The pass `memory`."""

from __future__ import annotations

import functools
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import ClassVar

import attrs
import numpy as np

from perfc import ir
from perfc.costmodels import Target
from perfc.ir import node_kinds
from perfc.ir.launch import BUSY_KINDS
from perfc.ir.location import ACCUMULATE_GRAD
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.types import MemorySpace
from perfc.passes import graphs, lowering
from perfc.passes.base import Pass, PassContext
from perfc.passes.columns import integers
from perfc.passes.facts import LAUNCHES, TYPED
from perfc.passes.memory.caching_allocator import rounded
from perfc.passes.memory.memory_use import (
    MEMORY,
    BufferKind,
    BufferRow,
    MemoryUse,
    held_bytes,
)
from perfc.passes.timing import detail_mask, task_mask

_BACKWARD, _OPTIMIZER = "backward", "optimizer"
_PACK = "pack"
"""Copies a gradient into its bucket."""
BLAS = "gemm"
"""Canonical name of the kernels that make PyTorch allocate the workspace."""


@attrs.frozen
class Memory(Pass):
    """Find how much device memory one iteration takes, where it peaks, and why.

    Eager PyTorch allocates when the host runs an op and frees when nobody can read a
    tensor any more: a result lives from its node to the last node that reads it or
    a view of it, inputs and outputs live throughout, and what an op needs besides
    its results lives as long as the op. An op that launches nothing makes a view; a
    written operand and the result are one storage. Of the ops of a generated kernel,
    only those have results that the kernel writes. Parameters, the states of the
    optimizer, the constants that kernels read, and the BLAS workspace (with a target)
    stay. What backward reads of forward lives till then, and weights that autocast has
    cast to the end of forward. Gradients that the optimizer
    reads live to the end of the iteration: the next one begins with `zero_grad`. States
    that backward adds to are gradients, too, which `zero_grad` does not free. Sums of
    microbatches are gradients; those that ranks add up live until they have.

    Not counted: the CUDA context, what Python keeps longer than the graph needs it. A
    rank class given as a launch graph has no tensors: zeros.
    """

    name: ClassVar[str] = "memory"
    requires: ClassVar[frozenset[ir.AnyKey]] = frozenset({TYPED, LAUNCHES})
    provides: ClassVar[frozenset[ir.AnyKey]] = frozenset({MEMORY})

    def run(self, program: ir.Program, ctx: PassContext) -> None:
        """Look at every rank class."""
        launches = ctx.get(LAUNCHES, program)
        uses: list[MemoryUse] = []
        for rank, graph in zip(program.classes, launches, strict=True):
            if rank.ops is None or rank.launches is not None:
                uses.append(MemoryUse())
                continue
            storages = Storages(rank.ops, graph, program.bindings)
            buffers = storages.buffers(ctx.system)
            uses.append(_use(storages, buffers))
        ctx.set(MEMORY, program, tuple(uses))


@attrs.frozen(eq=False)
class _Launched:
    """Facts about nodes that the launches of their graph show, by node name.

    Attributes:
        run: Those that have a task on the device: then their results are new.
        scratch: Sizes of the buffers that their kernels need besides them. A node
            of several ops drops those of one before the next: the most counts.
        keeps: Of nodes that generated kernels compute, the results that are written.

    """

    run: frozenset[str]
    scratch: Mapping[str, Sequence[int]]
    keeps: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, graph: ir.LaunchGraph) -> _Launched:
        """Look at the tasks."""
        ops = frozenset(compress(graph.op, task_mask(graph, BUSY_KINDS).tolist()))
        sizes: defaultdict[int, list[int]] = defaultdict(list)
        for task in np.flatnonzero(detail_mask(graph, lowering.SCRATCHES)).tolist():
            if graph.kernel[task] >= 0:
                work = graph.kernels[graph.kernel[task]].work
                sizes[graph.op[task]].append(
                    lowering.scratch_bytes(graph.detail[task], work)
                )
        scratch: dict[str, Sequence[int]] = {}
        for op, needed in sizes.items():
            node = graph.ops[op].node
            scratch[node] = max(scratch.get(node, ()), needed, key=sum)
        run = frozenset(graph.ops[op].node for op in ops if op >= 0)
        return cls(run, scratch, _kept(graph))


def _kept(graph: ir.LaunchGraph) -> dict[str, frozenset[str]]:
    """Return the results that generated kernels write, by node that they compute."""
    keeps: dict[str, frozenset[str]] = {}
    for op in graph.ops:
        for node in lowering.fused_nodes(op):
            written = frozenset(op.attributes.texts("keeps"))
            keeps[node] = keeps.get(node, frozenset()) | written
    if not keeps:
        return keeps
    for op in graph.ops:
        if op.node in keeps and not lowering.fused_nodes(
            op
        ):  # and a loop after its kernel
            keeps[op.node] |= {op.node}
    return keeps


@attrs.define(eq=False)
class Storages:
    """Storages of all values of a graph, and from when to when they are held.

    Attributes:
        graph: The op graph.
        launches: What it launches.
        bindings: The numbers of the symbols.
        nodes: Its nodes, in order.
        names: Their names.
        owner: The value whose storage a value has, if not its own; None where it
            has none.
        parts: The storages that a value without one of its own is made of again.
        last: Number of the last node that reads the storage of a value.

    """

    graph: ir.Graph
    launches: ir.LaunchGraph
    bindings: Mapping[str, int]
    nodes: Sequence[ir.Node] = attrs.field(init=False)
    names: Sequence[str] = attrs.field(init=False)
    owner: dict[ir.Value, ir.Value | None] = attrs.field(
        factory=dict["ir.Value", "ir.Value | None"], init=False
    )
    parts: dict[ir.Value, Sequence[ir.Value]] = attrs.field(
        factory=dict["ir.Value", "Sequence[ir.Value]"], init=False
    )
    last: dict[ir.Value | None, int] = attrs.field(
        factory=dict["ir.Value | None", int], init=False
    )
    _launched: _Launched = attrs.field(init=False)
    _bound: Callable[[ir.TensorType | None], ir.TensorType] = attrs.field(init=False)
    _nbytes: Callable[[ir.TensorType | None], int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.nodes = list(self.graph)
        self.names = [node.name for node in self.nodes]
        self._launched = _Launched.of(self.launches)
        self._bound = functools.cache(functools.partial(_bound, self.bindings))
        self._nbytes = functools.cache(functools.partial(_nbytes, self.bindings))

    def buffers(self, target: Target | None) -> list[BufferRow]:
        """Return the storages, in the order in which they are allocated."""
        made = self._made()
        self._keep_cached()
        end, gradients = len(self.nodes), self._gradients()
        states = self.graph.states  # gradients among them are zeroed, and not freed
        on_cpu = target is not None and target.device.synchronous
        placed = graphs.tables_off_device(self.graph, on_cpu=on_cpu)
        lasting = (
            (BufferKind.PARAMETER, self.graph.parameters),
            (BufferKind.OPTIMIZER, [v for v in states if v not in gradients]),
            (BufferKind.GRADIENT, [v for v in states if v in gradients]),
            (BufferKind.CONSTANT, self._constants(made)),
            (BufferKind.INPUT, self.graph.inputs),
        )
        found: list[BufferRow] = [
            (value.name, kind, self._lasting_bytes(value, placed), -1, end)
            for kind, values in lasting
            for value in values
        ]
        if target is not None and any(k.op == BLAS for k in self.launches.kernels):
            size = lowering.blas_workspace_bytes(target.device)
            found.append(("BLAS workspace", BufferKind.LIBRARY, size, -1, end))
        if target is not None and target.device.library_bytes:
            size = target.device.library_bytes
            found.append(("libraries", BufferKind.LIBRARY, size, -1, end))
        # Scratch comes before the results of its node: sorting is stable.
        passing = [*self._scratch(made), *self._results(made, gradients)]
        passing.sort(key=operator.itemgetter(3))
        return [row for row in [*found, *passing] if row[2]]

    def _lasting_bytes(
        self, value: ir.Value, placed: Mapping[ir.Value, ir.Record]
    ) -> int:
        """Return the bytes of device memory of a value: of some tables a part."""
        nbytes = self._nbytes(value.type)
        if value not in placed:
            return nbytes
        from perfc.costmodels import device_bytes  # noqa: PLC0415 - lazy

        return device_bytes(placed[value], nbytes)

    def _results(
        self,
        made: Mapping[int, Sequence[ir.Value]],
        gradients: Container[ir.Value | None],
    ) -> Iterator[BufferRow]:
        """Yield the storages of results, in the order of their nodes."""
        end, last, sums = len(self.nodes), self.last.get, self._sums()
        gradient, activation = BufferKind.GRADIENT, BufferKind.ACTIVATION
        for index, values in made.items():
            for value in values:
                size = self._nbytes(value.type)
                if value in gradients:
                    yield value.name, gradient, size, index, end
                else:
                    kind = gradient if value in sums else activation
                    yield value.name, kind, size, index, last(value, index)

    def _made(self) -> dict[int, Sequence[ir.Value]]:
        """Follow every value; return what each node that runs allocates.

        One walk finds the owner of every value, and its last read.
        """
        owner, last, keeps = self.owner, self.last, self._launched.keeps
        made: dict[int, Sequence[ir.Value]] = {}
        running = map(self._launched.run.__contains__, self.names)
        for index, (node, runs) in enumerate(zip(self.nodes, running, strict=True)):
            # Reading a view keeps the storage, so reads are noted at the owner.
            # Operands come before results, whose owner may be the same.
            for value in _reads(node) if node.regions else node.operands:
                last[owner.get(value, value)] = index
            if keeps:
                self._read_parts(node.operands, index)
                # Compiled code may write operands where the whole lies.
                joined = node_kinds.is_concat(node) and not runs
                if joined or self.names[index] in keeps:
                    made[index] = self._fused(node, keeps.get(self.names[index], ()))
                    continue
            source = _aliased(node, runs=runs)
            if source is not None:
                owner.update(dict.fromkeys(node.results, owner.get(source, source)))
                if source in self.parts:
                    parts = self.parts[source]
                    self.parts.update(dict.fromkeys(node.results, parts))
            elif not runs:  # known without running: in eager PyTorch there is no tensor
                owner.update(dict.fromkeys(node.results))
            if runs:
                made[index] = node.results if source is None else ()
        for value in self.graph.outputs:
            last[owner.get(value, value)] = len(self.nodes)
        self._read_parts(self.graph.outputs, len(self.nodes))
        return made

    def _keep_cached(self) -> None:
        """Let what autocast caches live until its context ends: with the forward pass.

        Its cache holds casts of weights; backward reads those that it has saved.
        """
        end = len(self.nodes) - 1
        for index in range(len(self.nodes) - 1, -1, -1):
            node = self.nodes[index]
            if node.location.phase in (_BACKWARD, _OPTIMIZER):
                end = index - 1
            elif node_kinds.is_cast(node) and node.attributes.get("cached"):
                (cast,) = node.results
                self.last[cast] = max(self.last.get(cast, index), end)

    def _read_parts(self, values: Iterable[ir.Value], index: int) -> None:
        for value in values:
            self.last.update(dict.fromkeys(self.parts.get(value, ()), index))

    def _fused(self, node: ir.Node, keeps: Container[str]) -> Sequence[ir.Value]:
        """Return the results that a node inside of a generated kernel allocates.

        The others of its results are computed where they are read, from all that
        the node reads; a join without a kernel lies in its pieces.
        """
        kept = [value for value in node.results if value.name in keeps]
        rest = [value for value in node.results if value.name not in keeps]
        parts: dict[ir.Value, None] = {}
        for value in node.operands:
            owner = self.owner.get(value, value)
            own = (owner,) if owner is not None else ()
            parts.update(dict.fromkeys(self.parts.get(value, own)))
        self.parts.update(dict.fromkeys(rest, tuple(parts)))
        self.owner.update(dict.fromkeys(rest))
        return kept

    def _gradients(self) -> set[ir.Value | None]:
        """Return the storages that backward fills and the optimizer reads; buckets."""
        read = [
            value
            for node in self.nodes
            if node.location.phase == _OPTIMIZER
            for value in node.operands
            if value.producer and value.producer.location.phase == _BACKWARD
        ]
        buckets = [node.operands[0] for node in self.nodes if node.op == _PACK]
        return {self.owner.get(value, value) for value in (*read, *buckets)}

    def _sums(self) -> set[ir.Value | None]:
        """Return the storages in which gradients of microbatches are added up."""
        summed = [
            node.operands[0]
            for node in self.nodes
            if node.location.origin == ACCUMULATE_GRAD
            and node.attributes.get("in_place")
        ]
        return {self.owner.get(value, value) for value in summed}

    def _constants(self, running: Iterable[int]) -> list[ir.Value]:
        """Return the constants that kernels read; PyTorch passes single numbers."""
        constants = {
            value
            for node in self.nodes
            if node_kinds.is_constant(node)
            for value in node.results
            if value.type is not None and value.type.rank
        }
        if not constants:
            return []
        read = (value for index in running for value in self.nodes[index].operands)
        return [value for value in dict.fromkeys(read) if value in constants]

    def _scratch(self, running: Iterable[int]) -> Iterator[BufferRow]:
        """Yield the buffers that nodes allocate besides their results."""
        nodes, names = self.nodes, self.names
        filled, keeps = self._launched.scratch, self._launched.keeps
        some = [
            n for n in running if names[n] in filled or nodes[n].op in lowering.SCRATCH
        ]
        for index in some:
            node, name = nodes[index], names[index]
            sizes = filled.get(name, ())
            rule = None if name in keeps else lowering.SCRATCH.get(node.op)
            if rule is not None:
                operands = tuple([self._bound(v.type) for v in node.operands])
                results = tuple([self._bound(v.type) for v in node.results])
                sizes = [*sizes, rule(node.attributes, operands, results)]
            for size in sizes:
                yield name, BufferKind.SCRATCH, size, index, index


def _aliased(node: ir.Node, *, runs: bool) -> ir.Value | None:
    """Return the operand whose storage the results have, if they are not new."""
    if not node.operands or node_kinds.is_free(node):
        return None
    written, view = _alias_places(node.op)
    if written is not None:
        return node.operands[written]
    if node.attributes.get("in_place"):
        return node.operands[0]
    return None if runs else node.operands[view]


@functools.cache
def _alias_places(op: str) -> tuple[int | None, int]:
    opdef = BUILTIN_OPS.find(op)
    if opdef is None:
        return None, 0
    return next(iter(opdef.mutates), None), opdef.view or 0


def _bound(bindings: Mapping[str, int], type_: ir.TensorType | None) -> ir.TensorType:
    assert type_ is not None  # the fact TYPED says so
    return type_.bind(bindings)


def _nbytes(bindings: Mapping[str, int], type_: ir.TensorType | None) -> int:
    """Return the bytes that a value of a type takes of the device's memory."""
    bound = _bound(bindings, type_)
    nbytes: int = bound.nbytes if bound.space is MemorySpace.DEVICE else 0
    return nbytes


def _reads(node: ir.Node) -> Iterator[ir.Value]:
    yield from node.operands
    for region in node.regions:
        yield from region.outputs
        for inner in region:
            yield from _reads(inner)


def _use(storages: Storages, buffers: Sequence[BufferRow]) -> MemoryUse:
    """Add the buffers up along the nodes."""
    nodes, names = storages.nodes, storages.names
    size = rounded(integers([buffer[2] for buffer in buffers]))
    first = integers([buffer[3] for buffer in buffers])
    last = integers([buffer[4] for buffer in buffers])
    during, after = held_bytes(first, last, size, len(nodes))
    peak = int(during.argmax()) - 1
    places = np.flatnonzero((first <= peak) & (peak <= last))
    live = [buffers[place] for place in places.tolist()]
    live_bytes: Counter[BufferKind] = Counter()
    for (_, kind, *_), nbytes in zip(live, size[places].tolist(), strict=True):
        live_bytes[kind] += nbytes
    return MemoryUse(
        parameters_bytes=live_bytes[BufferKind.PARAMETER]
        + live_bytes[BufferKind.CONSTANT],
        activations_bytes=sum(
            live_bytes[kind]
            for kind in (BufferKind.INPUT, BufferKind.ACTIVATION, BufferKind.SCRATCH)
        ),
        gradients_bytes=live_bytes[BufferKind.GRADIENT],
        optimizer_bytes=live_bytes[BufferKind.OPTIMIZER],
        library_bytes=live_bytes[BufferKind.LIBRARY],
        node=names[peak] if peak >= 0 else "",
        phase=nodes[peak].location.phase if peak >= 0 else "",
        rows_at_peak=live,
        nodes=names,
        before_bytes=int(during[0]),
        during_bytes=during[1:].astype(np.int64).tolist(),
        after_bytes=after[1:].astype(np.int64).tolist(),
        rows=buffers,
    )
