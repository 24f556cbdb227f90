"""What gathers parameters that ranks share: found alike by all who move it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from perfc.ir import Graph, Node, Value
from perfc.ir.node_kinds import has_trait, is_all_gather, is_cast, is_view
from perfc.ir.opdef import Trait
from perfc.passes.graphs.phases import FORWARD


def gathers(graph: Graph, phase: str = FORWARD) -> Iterator[Sequence[Node]]:
    """Yield, of each tensor that a phase gathers of parameters, all that brings it.

    The cast of what is sent, the gather, and the views of what it brings.
    """
    parts = set(graph.parameters)
    for node in graph:
        if node.location.phase != phase or not parts.issuperset(node.operands):
            continue
        if is_all_gather(node):
            casts, views = _casts(node.operands[0]), _views(graph, node.results, phase)
            yield [*casts, node, *views]
        elif is_cast(node) or has_trait(node, Trait.SUMMED_GRADIENT):
            parts.update(node.results)


def _casts(part: Value) -> Iterator[Node]:
    """Yield nodes that make what is gathered of a parameter: nobody keeps that."""
    made: list[Node] = []
    while (node := part.producer) is not None:
        made.append(node)
        part = node.operands[0]
    if any(map(is_cast, made)):
        yield from reversed(made)


def _views(graph: Graph, values: Iterable[Value], phase: str) -> Iterator[Node]:
    for node in dict.fromkeys(node for v in values for node in graph.readers(v)):
        if is_view(node) and node.location.phase == phase:
            yield node
            yield from _views(graph, node.results, phase)
