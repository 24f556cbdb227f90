"""Values that want gradients."""

from __future__ import annotations

from perfc.ir import Graph, Node, Value
from perfc.passes.embeddings import encoder
from perfc.passes.graphs import (
    typed,
)

DETACH = "aten::detach"
"""What takes a value out of the graph of autograd."""


def needs_gradient(graph: Graph, parameters: frozenset[Value]) -> set[Value]:
    """Return the values that depend on *parameters* through ops of real numbers.

    What the model detaches is a number like any other.
    """
    found = set(parameters)
    for node in graph:
        if found.isdisjoint(node.operands) or node.attributes.get("call") == DETACH:
            continue
        found.update(v for v in node.results if typed(v).dtype.is_float or encoder(v))
    return found


def first_complex(graph: Graph, needing: set[Value]) -> Node | None:
    """Return the first node that makes complex numbers of what wants a gradient.

    Args:
        graph: The forward pass.
        needing: The values that want one: what `needs_gradient` has found.

    """
    for node in graph:
        if not needing.isdisjoint(node.operands) and any(
            typed(value).dtype.kind == "complex" for value in node.results
        ):
            return node
    return None
