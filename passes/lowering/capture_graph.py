"""The pass `capture-graph`."""

from __future__ import annotations

from typing import ClassVar
from weakref import WeakKeyDictionary

import attrs

from perfc.costmodels.sheets import GRAPH_LAUNCH
from perfc.ir import AnyKey, LaunchGraph, LaunchOp, PerfcError, Program, TaskKind
from perfc.ir.launch import HOST_KINDS, OFF_DEVICE, ResourceKind
from perfc.ir.support import UnsupportedModelError
from perfc.passes import graphs
from perfc.passes.base import Pass, PassContext
from perfc.passes.facts import LAUNCHES

_SPLITS = ".splits.item"
"""How the node is called by which hosts learn how much ranks of sharded tables get."""

_TRANSFERS = frozenset({"h2d", "d2h"})
"""Copies between host and device, which may stay outside of the graph."""


@attrs.frozen
class CaptureGraph(Pass):
    """Replay the iteration as one CUDA graph.

    As after `torch.cuda.graph(...)`: the inputs are copied into the graph's static
    tensors first, then one `cudaGraphLaunch` enqueues every kernel, and the host
    waits at the end. Ops that launch nothing do not exist in a replay. Copies from
    and to the host at the two ends of the iteration stay outside of the graph.
    """

    name: ClassVar[str] = "capture-graph"
    runtime: ClassVar[str] = "cudagraph"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({LAUNCHES})
    provides: ClassVar[frozenset[AnyKey]] = frozenset({LAUNCHES})

    def run(self, program: Program, ctx: PassContext) -> None:
        """Capture the launches of every rank class."""
        for rank in program.classes:
            if rank.launches is not None:
                msg = (
                    f"{rank.launches} is a launch graph, whose host calls are given; "
                    f"pass {self.name!r} (--runtime cudagraph) captures op graphs only"
                )
                raise PerfcError(msg)
        launches = ctx.get(LAUNCHES, program)
        ctx.set(LAUNCHES, program, tuple(map(captured, launches)))


_CAPTURED: WeakKeyDictionary[LaunchGraph, LaunchGraph] = WeakKeyDictionary()
"""Captured graphs by structure: kernels do not matter, complete ones do not change."""


def captured(graph: LaunchGraph) -> LaunchGraph:
    """Return the launch graph of a replay of *graph*.

    Kernels and resources keep their numbers; ops do not.
    """
    if not graph.complete:
        return _Capture(graph).run()
    found = _CAPTURED.get(graph.structure)
    if found is None:
        found = _CAPTURED[graph.structure] = _Capture(graph).run()
    return found.with_kernels(graph.kernels)


@attrs.define(eq=False)
class _Capture:
    """Copies the tasks of *source*, those of its middle after one call.

    Attributes:
        source: The launches, op after op.
        copy: The launches of the replay.

    """

    source: LaunchGraph
    copy: graphs.LaunchCopy = attrs.field(init=False)

    def run(self) -> LaunchGraph:
        """Return the result."""
        source = self.source
        self.copy = graphs.LaunchCopy(source)
        self.copy.result.kernels += source.kernels
        first, end = self._middle()
        self._copy(range(first))
        if first < end:
            self._launch(range(first, end))
        self._copy(range(end, len(source)))
        return self.copy.result

    def _middle(self) -> tuple[int, int]:
        """Return the first task that is captured, and the one after the last."""
        source = self.source
        work = {
            op
            for op, kind, detail in zip(
                source.op, source.kind, source.detail, strict=True
            )
            if not (kind in HOST_KINDS or detail in _TRANSFERS)
        }
        tasks = [task for task, op in enumerate(source.op) if op in work]
        return (tasks[0], tasks[-1] + 1) if tasks else (0, 0)

    def _copy(self, tasks: range) -> None:
        """Copy tasks as they are, with their ops."""
        source = self.source
        before = -1
        for task in tasks:
            op = source.op[task]
            if op != before:
                self.copy.result.add_op(source.ops[op])
                before = op
            self.copy.add(task)

    def _launch(self, tasks: range) -> None:
        """Put the device tasks after one call, without what the host did."""
        source, result = self.source, self.copy.result
        for task in tasks:
            if source.resources[source.resource[task]].device == OFF_DEVICE:
                raise UnsupportedModelError(_refused_elsewhere(source, task))
            if source.kind[task] is TaskKind.SYNC:
                raise UnsupportedModelError(_refusal(source, task))
            if source.kind[task] is TaskKind.HOST:
                raise UnsupportedModelError(_refused_host(source, task))
        thread = next(
            number
            for number, resource in enumerate(source.resources)
            if resource.kind is ResourceKind.THREAD
        )
        op = result.add_op(LaunchOp(GRAPH_LAUNCH))
        call = result.task(TaskKind.CALL, thread, op=op, detail=GRAPH_LAUNCH)
        before = -1
        for task in tasks:
            if source.kind[task] in HOST_KINDS:
                continue
            if source.op[task] != before:
                before = source.op[task]
                result.add_op(source.ops[before])
            self.copy.add(task, issue=call)


def _refusal(graph: LaunchGraph, task: int) -> str:
    op = graph.ops[graph.op[task]]
    node = f" (%{op.node})" if op.node else ""
    advice = "keep the tensor on the device or in pinned memory"
    if op.node.endswith(_SPLITS):
        advice = (
            "say that bags have fixed lengths, shard-embeddings{fixed-lengths=true}"
        )
    return (
        f"{graph.name} cannot be captured as a CUDA graph: {op.name}{node} calls "
        f"{graph.detail[task]}, which waits for the device, and CUDA refuses that "
        f"while it captures; {advice}, or use --runtime eager"
    )


def _refused_elsewhere(graph: LaunchGraph, task: int) -> str:
    op = graph.ops[graph.op[task]]
    return (
        f"{graph.name} cannot be captured as a CUDA graph: rows of {op.name} "
        f"(%{op.node}) are brought by others than the device; put the tables into hbm, "
        "uvm or uvm-caching, or use --runtime eager"
    )


def _refused_host(graph: LaunchGraph, task: int) -> str:
    op = graph.ops[graph.op[task]]
    return (
        f"{graph.name} cannot be captured as a CUDA graph: {op.name} (%{op.node}) "
        "keeps the host between its kernels, and in a replay there is no host between "
        "them; put it at the start of the step, or use --runtime eager"
    )
