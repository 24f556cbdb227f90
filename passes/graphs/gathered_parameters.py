"""What gathers parameters that ranks share: found alike by all who move it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from perfc.ir import Graph, Node, Value
from perfc.ir.ops import BUILTIN_OPS
from perfc.passes.graphs.phases import FORWARD


def gathers(graph: Graph, phase: str = FORWARD) -> Iterator[Sequence[Node]]:
    """Yield, of each tensor that a phase gathers of parameters, all that brings it.

    The cast of what is sent, the gather, and the views of what it brings.
    """
    parts = set(graph.parameters)
    for node in graph:
        if node.location.phase != phase or not parts.issuperset(node.operands):
            continue
        if node.op in ("cast", "replicated"):
            parts.update(node.results)
        if node.op == "all_gather":
            casts, views = _casts(node.operands[0]), _views(graph, node.results, phase)
            yield [*casts, node, *views]


def _casts(part: Value) -> Iterator[Node]:
    """Yield nodes that make what is gathered of a parameter: nobody keeps that."""
    made: list[Node] = []
    while (node := part.producer) is not None:
        made.append(node)
        part = node.operands[0]
    if any(node.op == "cast" for node in made):
        yield from reversed(made)


def _views(graph: Graph, values: Iterable[Value], phase: str) -> Iterator[Node]:
    """Yield the views that a phase makes of *values*, and of these views."""
    for node in dict.fromkeys(node for v in values for node in graph.readers(v)):
        is_view = BUILTIN_OPS[node.op].view is not None
        if is_view and node.location.phase == phase:
            yield node
            yield from _views(graph, node.results, phase)
