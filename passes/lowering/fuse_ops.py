"""The pass `fuse-ops`."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import attrs

from perfc import ir
from perfc.ir.copying import bind_record
from perfc.ir.launch import BUSY_KINDS
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.program import RankClass
from perfc.ir.support import UnsupportedModelError
from perfc.passes.base import Pass, PassContext
from perfc.passes.facts import LAUNCHES
from perfc.passes.graphs import LaunchSplice, in_order_of_ops, tasks_of
from perfc.passes.lowering.eager import PARTS

_POINTWISE = frozenset({"elementwise", "triton_poi"})
"""Kernels that compute each element on its own, so that another kernel can do it where
it reads or writes that element."""


@attrs.frozen
class FuseOps(Pass):
    """Launch one kernel in place of those of several ops.

    As somebody writes it by hand, in Triton or CUDA: what one of the ops writes for
    another stays in registers, as does what the kernels of one op write for each
    other; what several of them read is read once, and the host calls one op. At most
    one of the kernels may be more than a loop over elements (a GEMM, a reduction, a
    lookup): it takes the others along, before or after it. A GEMM whose sum is split
    keeps the kernel that adds its parts up, which takes along what comes after.

    The ops follow one another, on one stream, and nothing in between synchronises.

    Attributes:
        ops: Ids of the nodes, with spaces between; or, as JSON, a list of such lists.
        us: Microseconds that the kernel takes; 0 for what cost models say of it. As
            JSON, a list of one number for each list of ops.

    """

    name: ClassVar[str] = "fuse-ops"
    requires: ClassVar[frozenset[ir.AnyKey]] = frozenset({LAUNCHES})
    provides: ClassVar[frozenset[ir.AnyKey]] = frozenset({LAUNCHES})
    runs_before: ClassVar[frozenset[str]] = frozenset({"capture-graph"})

    ops: str = ""
    us: str = "0"

    @classmethod
    def of(cls, fusions: Sequence[tuple[Sequence[str], float]]) -> FuseOps:
        """Return the pass that makes several fusions, each with microseconds or 0."""
        ops = json.dumps([[*nodes] for nodes, _ in fusions])
        return cls(ops, json.dumps([us for _, us in fusions]))

    @property
    def fusions(self) -> list[tuple[tuple[str, ...], float]]:
        """The nodes of each fusion, and its microseconds."""
        listed = _read(self.ops, [self.ops.split()])
        times = _read(self.us, [self.us])
        try:
            groups = [tuple(map(str, nodes)) for nodes in listed]
            amounts = [float(us) for us in times]
        except (TypeError, ValueError):
            groups, amounts = [], []
        good = all(groups) and all(0 <= us < math.inf for us in amounts)
        if not groups or len(groups) != len(amounts) or not good:
            msg = (
                f"ops={self.ops} us={self.us} of {self.name}: expected ids of nodes, "
                "and microseconds, 0 or more"
            )
            raise ir.UsageError(msg)
        return list(zip(groups, amounts, strict=True))

    def run(self, program: ir.Program, ctx: PassContext) -> None:
        """Fuse ops of every rank class that has them."""
        graphs = [*ctx.get(LAUNCHES, program)]
        for nodes, us in self.fusions:
            found = False
            for at, (rank, graph) in enumerate(
                zip(program.classes, graphs, strict=True)
            ):
                names = {op.node for op in graph.ops}
                if names.isdisjoint(nodes):
                    continue
                found = True
                source = in_order_of_ops(graph)
                fusing = _Fusing(source, rank, program.bindings, nodes, us * 1e-6)
                graphs[at] = fusing.run()
            if not found:
                msg = f"{self.name}: no op launches anything for node {nodes[0]!r}"
                raise ir.UsageError(msg)
        ctx.set(LAUNCHES, program, tuple(graphs))


def _read(text: str, plain: list[Any]) -> list[Any]:
    if not text.lstrip().startswith("["):
        return plain
    try:
        found = json.loads(text)
    except ValueError:
        return []
    return cast("list[Any]", found)


@attrs.define(eq=False)
class _Fusing:
    """Puts one op in place of several.

    Attributes:
        source: What is launched, with tasks in the order of ops.
        rank: The rank class that launches it.
        bindings: The numbers of the symbols.
        names: Ids of the nodes to fuse.
        seconds: What the kernel takes; 0 for what it is priced at.

    """

    source: ir.LaunchGraph
    rank: RankClass
    bindings: Mapping[str, int]
    names: Sequence[str]
    seconds: float
    _nodes: list[ir.Node] = attrs.field(init=False)
    _launching: frozenset[str] = attrs.field(init=False)

    def run(self) -> ir.LaunchGraph:
        """Return the launch graph with one op for all."""
        source, graph = self.source, self.rank.ops
        chosen = frozenset(self.names)
        self._nodes = [] if graph is None else [n for n in graph if n.name in chosen]
        self._launching = frozenset([source.ops[op].node for op in {*source.op}])
        ops = self._ops()
        device = [t for op in ops for t in self._tasks(op) if self._is_busy(t)]
        self._check(ops, device)
        splice = LaunchSplice(source, range(ops[0], ops[-1] + 1))
        for op in splice.ops:
            if op not in ops:
                splice.result.add_op(source.ops[op])
        self._launch(splice, ops, device)
        return splice.finished()

    def _tasks(self, op: int) -> range:
        return tasks_of(self.source, range(op, op + 1))

    def _is_busy(self, task: int) -> bool:
        return self.source.kind[task] in BUSY_KINDS

    def _ops(self) -> list[int]:
        """Return the ops of the nodes, in order of issue."""
        numbers: dict[str, list[int]] = {}
        chosen = frozenset(self.names)
        for number, op in enumerate(self.source.ops):
            if op.node in chosen and self._tasks(number):
                numbers.setdefault(op.node, []).append(number)
        for name in self.names:
            if name not in numbers:
                msg = f"fuse-ops: node {name!r} launches nothing that could be fused"
                raise ir.UsageError(msg)
        return sorted({n for name in self.names for n in numbers[name]})

    def _check(self, ops: Sequence[int], device: Sequence[int]) -> None:
        """Refuse what cannot become one kernel."""
        source = self.source
        what = f"fuse-ops: {_listed(self.names)} cannot be one kernel"
        between = [op for op in range(ops[0], ops[-1]) if op not in ops]
        for op in between:
            kinds = [source.kind[task] for task in self._tasks(op)]
            if ir.TaskKind.SYNC in kinds:
                msg = f"{what}: {_name(source, op)} between them synchronises"
                raise ir.UsageError(msg)
            if kinds:
                msg = f"{what}: {_name(source, op)} runs between them"
                raise ir.UsageError(msg)
        for op in ops:
            for task in self._tasks(op):
                if source.kind[task] not in _MOVABLE:
                    kind = source.kind[task].value
                    msg = f"{what}: {_name(source, op)} has a {kind}"
                    raise ir.UsageError(msg)
        if len({source.resource[task] for task in device}) != 1:
            msg = f"{what}: they run on several streams, or not on the device"
            raise ir.UsageError(msg)

    def _launch(
        self, splice: LaunchSplice, ops: Sequence[int], device: Sequence[int]
    ) -> None:
        """Launch the kernel, or two of them, in place of what the ops launch."""
        source, nodes = self.source, self._nodes
        first = source.ops[ops[0]]
        attributes = {
            key: value
            for key, value in first.attributes.items()
            if key == "compiled" and value == "kernel"
        }
        kept = tuple([value.name for value in self._written]) if nodes else ()
        record = ir.Record({**attributes, "nodes": tuple(self.names), "keeps": kept})
        result = splice.result
        result.add_op(ir.LaunchOp(self._title(ops), source.ops[ops[-1]].node, record))
        before = splice.tasks.start
        awaited = {o for t in device for o in source.after[t] if o < before}
        after = tuple(sorted(awaited))
        calls = [t for op in ops for t in self._tasks(op) if not self._is_busy(t)]
        used = iter(calls)
        last = -1
        for kernel, seconds in self._kernels(device):
            issue = self._issue(splice, next(used, None), device[0])
            last = result.task(
                ir.TaskKind.KERNEL,
                source.resource[device[0]],
                op=len(result.ops) - 1,
                kernel=-1 if kernel is None else result.intern(kernel),
                issue=issue,
                after=after,
                stated_s=seconds,
            )
            after = ()
        for task in (*device, *calls):  # who waited for them waits for this one
            splice.moved.setdefault(task, last)

    def _issue(self, splice: LaunchSplice, call: int | None, task: int) -> int:
        """Return the call that issues a kernel: one of its own, if the ops had any."""
        if call is None:
            return splice.now(self.source.issue[task])
        return splice.add(call)

    def _title(self, ops: Sequence[int]) -> str:
        names = [self.source.ops[op].name.rpartition("::")[2] for op in ops]
        return "_".join(["fused", *dict.fromkeys(names)])

    def _kernels(self, device: Sequence[int]) -> list[tuple[ir.Kernel | None, float]]:
        """Return the kernels in place of the others, and their seconds if stated."""
        if self.seconds:
            return [(None, self.seconds)]
        source = self.source
        numbers = [source.kernel[task] for task in device]
        if self.rank.ops is None or min(numbers) < 0:
            msg = (
                f"fuse-ops: what {_listed(self.names)} read and write is not known; "
                "say how long the kernel takes"
            )
            raise UnsupportedModelError(msg)
        kernels = [source.kernels[number] for number in numbers]
        anchors = [n for n, k in enumerate(kernels) if k.op not in _POINTWISE]
        if len(anchors) > 1:
            shown = _listed(dict.fromkeys(kernels[n].op for n in anchors))
            msg = (
                f"fuse-ops: {_listed(self.names)} are {len(anchors)} kernels that are "
                f"no loops over elements ({shown}), which no cost model prices as one; "
                "say how long it takes"
            )
            raise UnsupportedModelError(msg)
        saved = self._saved() + self._saved_within(device)
        if not anchors:
            return [(self._loop(kernels, saved), math.nan)]
        (anchor,) = anchors
        behind = anchor + 1
        if behind < len(device) and source.detail[device[behind]] == PARTS:
            loop = self._loop([*kernels[:anchor], *kernels[behind:]], saved)
            return [(kernels[anchor], math.nan), (loop, math.nan)]
        work = _less(_sum(kernels), saved)
        return [(attrs.evolve(kernels[anchor], work=work), math.nan)]

    def _loop(self, kernels: Sequence[ir.Kernel], saved: ir.Work) -> ir.Kernel:
        """Return the signature of a generated loop that does the work of several."""
        sizes = [
            (k.params.integer("rows") * k.params.integer("cols"), n)
            for n, k in enumerate(kernels)
        ]
        elements, at = max(sizes)
        params = ir.Record({"rows": elements, "cols": 1})
        largest = kernels[at]
        work = _less(_sum(kernels), saved)
        return ir.Kernel("triton_poi", largest.dtype, largest.math, params, work)

    @property
    def _written(self) -> list[ir.Value]:
        """Results that somebody else reads, or nobody."""
        graph, nodes = self.rank.ops, self._nodes
        assert graph is not None  # there are nodes
        return [
            v for node in nodes for v in node.results if not self._is_inner(graph, v)
        ]

    def _is_inner(self, graph: ir.Graph, value: ir.Value) -> bool:
        """Whether only fused nodes read a value, or views that only they read."""
        readers = [*graph.readers(value)]
        if value in graph.outputs or not readers:
            return False
        return all(
            node.name in self.names
            or (self._is_view(node) and self._is_inner(graph, node.results[0]))
            for node in readers
        )

    def _is_view(self, node: ir.Node) -> bool:
        """Whether a node launches nothing: its result is its operand's memory."""
        return len(node.results) == 1 and node.name not in self._launching

    def _saved(self) -> ir.Work:
        """Return the bytes that need not be moved any more."""
        graph = self.rank.ops
        assert graph is not None  # the caller has looked
        inner = {v for n in self._nodes for v in n.results if self._is_inner(graph, v)}
        made = {v for n in self._nodes for v in n.results}
        written = sum(map(self._nbytes, inner))
        read, seen = 0, set[ir.Value]()
        for value in self._reads():
            if value in made or value in seen:
                read += self._nbytes(value)
            seen.add(value)
        return ir.Work(0, read, written)

    def _saved_within(self, device: Sequence[int]) -> ir.Work:
        """Return the bytes that kernels of one node need not move for each other.

        As one kernel they move what the op cannot do without. What a GEMM with a split
        sum leaves in memory for its second kernel stays there.
        """
        source, found = self.source, ir.Work(0, 0, 0)
        for node in self._nodes:
            own = [t for t in device if source.ops[source.op[t]].node == node.name]
            if len(own) < _SEVERAL or any(source.detail[t] == PARTS for t in own):
                continue
            work = _sum([source.kernels[source.kernel[task]] for task in own])
            found += _less(work, self._needed(node))
        return attrs.evolve(found, flops=0)

    def _needed(self, node: ir.Node) -> ir.Work:
        """Return the flops and the bytes that an op cannot do without."""
        operands, results = (
            [v.type.bind(self.bindings) for v in values if v.type is not None]
            for values in (node.operands, node.results)
        )
        attributes = bind_record(node.attributes, self.bindings)
        return BUILTIN_OPS[node.op].work(attributes, operands, results)

    def _reads(self) -> Iterator[ir.Value]:
        """Yield the values that each of the nodes reads, behind views."""
        for node in self._nodes:
            for value in node.operands:
                found = value
                while (maker := found.producer) is not None and self._is_view(maker):
                    if not maker.operands:
                        break
                    found = maker.operands[0]
                yield found

    def _nbytes(self, value: ir.Value) -> int:
        return 0 if value.type is None else int(value.type.bind(self.bindings).nbytes)


_SEVERAL = 2

_MOVABLE = frozenset({ir.TaskKind.CALL, ir.TaskKind.KERNEL})
"""Tasks that a fused kernel does, or makes needless."""


def _sum(kernels: Sequence[ir.Kernel]) -> ir.Work:
    total = kernels[0].work
    for kernel in kernels[1:]:
        total += kernel.work
    return total


def _less(work: ir.Work, saved: ir.Work) -> ir.Work:
    """Return work without the bytes that are saved, of which kernels may move fewer."""
    return ir.Work(
        work.flops,
        max(0, work.bytes_read - saved.bytes_read),
        max(0, work.bytes_written - saved.bytes_written),
    )


def _name(graph: ir.LaunchGraph, op: int) -> str:
    launched = graph.ops[op]
    return f"{launched.node or launched.name!r} ({launched.name})"


def _listed(names: Collection[str]) -> str:
    return ", ".join(map(repr, names))
