"""Loops that walk a sequence step by step: the same small ops, once a step."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import attrs

from perfc.ir.core import Graph, Node, Value

STEP_LOOP = "step-loop"
"""Code of the remark that a model has such loops."""

_LEAST = 8
"""Steps of a loop; what is repeated less often may be layers, scales or heads."""

_PHASES = ("forward", "backward")

_PRODUCTS = frozenset({"linear", "matmul"})
"""A kernel that keeps its state on chip does none with weights in each step."""


@attrs.frozen(eq=False)
class StepLoop:
    """One loop.

    Attributes:
        nodes: All its steps, in order.
        steps: How many there are.

    """

    nodes: tuple[Node, ...]
    steps: int


def step_loops(graph: Graph) -> list[StepLoop]:
    """Find ops of one module that are repeated, each step on what the last one made.

    Nothing else reads what they make before the last step is done.
    """
    groups: defaultdict[tuple[str, str], list[Node]] = defaultdict(list)
    for node in graph:
        if node.location.source and node.location.phase in _PHASES:
            groups[node.location.module, node.location.phase].append(node)
    long = [nodes for nodes in groups.values() if len(nodes) >= _LEAST]
    if not long:
        return []
    order = {node: place for place, node in enumerate(graph)}
    weights = frozenset(graph.parameters)
    found = [loop for nodes in long if (loop := _loop(nodes)) is not None]
    return [
        loop
        for loop in found
        if _is_closed(graph, loop.nodes, order)
        and not any(_multiplies(node, weights) for node in loop.nodes)
    ]


def _loop(nodes: Sequence[Node]) -> StepLoop | None:
    """Return the loop over a module's nodes, if each step reads the one before."""
    lines: defaultdict[tuple[str, str], list[Node]] = defaultdict(list)
    for node in nodes:
        lines[node.op, node.location.source].append(node)
    counts = Counter(len(alike) for alike in lines.values() if len(alike) >= _LEAST)
    if not counts:
        return None
    steps = min(counts, key=lambda count: (-counts[count], count))
    step = {
        node: place * steps // len(alike)
        for alike in lines.values()
        for place, node in enumerate(alike)
        if len(alike) % steps == 0
    }
    carried = {
        at
        for node, at in step.items()
        if any(step.get(made) == at - 1 for made in makers(node.operands))
    }
    if len(carried) < steps - 1:
        return None
    return StepLoop(tuple(node for node in nodes if node in step), steps)


def _multiplies(node: Node, weights: frozenset[Value]) -> bool:
    """Whether a node is a product with a weight, or with a view of one."""
    if node.op not in _PRODUCTS:
        return False
    for value in node.operands:
        seen = value
        while seen.producer is not None and len(seen.producer.operands) == 1:
            seen = seen.producer.operands[0]
        if seen in weights:
            return True
    return False


def makers(values: Iterable[Value]) -> list[Node]:
    """Return the nodes that make these values."""
    return [value.producer for value in values if value.producer is not None]


def _is_closed(graph: Graph, nodes: Sequence[Node], order: dict[Node, int]) -> bool:
    inside, last = frozenset(nodes), order[nodes[-1]]
    return all(
        reader in inside or order.get(reader, last) > last
        for node in nodes
        for value in node.results
        for reader in graph.readers(value)
    )
