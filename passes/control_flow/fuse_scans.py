"""Price loops over a sequence as one kernel that keeps its state on chip."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import attrs

from perfc.ir import Graph, Node, Program, Record
from perfc.ir.node_kinds import has_trait, is_free
from perfc.ir.opdef import Trait
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.step_loops import STEP_LOOP, StepLoop, makers, step_loops
from perfc.ir.support import UnsupportedModelError
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.graphs import is_training_step

_JOINS = frozenset({"concat", "stack"})


@attrs.frozen
class FuseScans(Transform):
    """Put one kernel in the place of each loop over a sequence.

    Libraries have such kernels for models whose state is carried from token to token,
    as selective scans and WKV; without them the model runs its steps one after
    another. The kernel also does the elementwise work around the loop that nothing
    else reads. It is taken to read what it needs once, to write what others read once
    and to do the flops of the loop: a time that no measurement bears out, so it is
    told as that of an op without a model.
    """

    name: ClassVar[str] = "fuse-scans"
    phase: ClassVar[Phase] = Phase.FORWARD

    def run(self, program: Program, ctx: PassContext) -> None:
        """Rewrite every op graph."""
        for rank in program.classes:
            if rank.ops is None:
                continue
            if is_training_step(rank.ops):
                msg = f"{program}: fuse-scans prices inference, not a training step"
                raise UnsupportedModelError(msg)
            for loop in step_loops(rank.ops):
                _fuse(rank.ops, loop)
        ctx.diagnostics[:] = [d for d in ctx.diagnostics if d.code != STEP_LOOP]


def _fuse(graph: Graph, loop: StepLoop) -> None:
    inside = dict.fromkeys(loop.nodes)
    _add_makers(graph, inside)
    _add_readers(graph, inside)
    nodes = [node for node in graph if node in inside]
    made = {value: node for node in nodes for value in node.results}
    returned = frozenset(graph.outputs)
    results = [
        value
        for value, node in made.items()
        if node.has_effect
        or value in returned
        or any(reader not in inside for reader in graph.readers(value))
    ]
    given = dict.fromkeys(v for n in nodes for v in n.operands if v not in made)
    operands = [v for v in given if not any(map(is_free, makers([v])))]
    fused: list[Node] = []

    def add() -> None:
        flops = sum(map(_flops, nodes))
        names = [graph.fresh_name(f"{value.name}.scan") for value in results]
        attributes = Record({"op": "fused scan", "flops": flops})
        where = nodes[-1].location
        fused.append(graph.add("unknown", operands, names, attributes, location=where))
        for value, new in zip(results, fused[0].results, strict=True):
            new.type = value.type

    waiting = set(nodes)

    def step(node: Node) -> None:
        if not waiting and not fused:
            add()
        waiting.discard(node)

    graph.rewrite(step)
    if not fused:
        add()
    for value, new in zip(results, fused[0].results, strict=True):
        graph.replace_uses(value, new)
    graph.erase_dead(keep=lambda n: n in fused or (n.has_effect and n not in inside))


def _add_makers(graph: Graph, inside: dict[Node, None]) -> None:
    """Add what is computed for the loop alone, from what comes next to it."""
    returned = frozenset(graph.outputs)
    for node in reversed(tuple(graph)):
        readers = {r for value in node.results for r in graph.readers(value)}
        alone = readers <= inside.keys() and returned.isdisjoint(node.results)
        if node not in inside and readers and alone and _fits(node, inside):
            inside[node] = None


def _add_readers(graph: Graph, inside: dict[Node, None]) -> None:
    """Add what is computed from the loop at once, up to what does not fit."""
    last = max(place for place, node in enumerate(graph) if node in inside)
    for node in tuple(graph)[last + 1 :]:
        if inside.keys().isdisjoint(makers(node.operands)):
            continue
        if not _fits(node, inside) and node.op not in _JOINS:
            return
        inside[node] = None


def _fits(node: Node, inside: Iterable[Node]) -> bool:
    here, there = next(iter(inside)).location, node.location
    simple = has_trait(node, Trait.ELEMENTWISE) or BUILTIN_OPS[node.op].view is not None
    near = (here.module, here.phase) == (there.module, there.phase)
    return simple and near and not node.has_effect


def _flops(node: Node) -> int:
    types = [[v.type for v in values] for values in (node.operands, node.results)]
    operands, results = ([t for t in listed if t is not None] for listed in types)
    return int(BUILTIN_OPS[node.op].work(node.attributes, operands, results).flops)
