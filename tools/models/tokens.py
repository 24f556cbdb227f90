"""Models of sequences, and how many tokens a sample of one has."""

from __future__ import annotations

from collections.abc import Iterator

from perfc.ir import Graph, Node, Program, Value
from perfc.ir.dims import Dim, evaluate
from perfc.ir.node_kinds import has_trait, is_gather
from perfc.ir.opdef import Trait

_ALONG = frozenset({"attention", "recurrent", "linear_attention"})
"""Ops that go along a sequence."""

_SAME_ELEMENTS = (Trait.ELEMENTWISE, Trait.CONVERTS, Trait.KEEPS_ORDER)
_ROWS_AND_COLUMNS = 2


def goes_along(program: Program) -> bool:
    """Whether a program has attention or recurrent layers, known op by op."""
    return any(node.op in _ALONG for graph in _graphs(program) for node in graph)


def _graphs(program: Program) -> list[Graph]:
    return [rank.ops for rank in program.classes if rank.ops is not None]


def tokens_per_sample(program: Program) -> int | None:
    """Return how many tokens a sample of a program has, if that is known.

    Tokens are the columns of an input of whole numbers by which rows of a table are
    looked up, in a model with attention or recurrent layers. Where several inputs share
    a table, as in an encoder and its decoder, they are the tokens of all.
    """
    if not goes_along(program):
        return None
    tables: dict[Value, dict[str, int]] = {}
    for graph in _graphs(program):
        inputs = frozenset(graph.inputs)
        for node in filter(_looks_up, graph):
            found = tables.setdefault(node.operands[0], {})
            for one in inputs.intersection(_as_long_as(node.operands[1])):
                if (columns := _columns(one)) is not None:
                    found[one.name] = evaluate(columns, program.bindings)
    return max((sum(found.values()) for found in tables.values()), default=0) or None


def _looks_up(node: Node) -> bool:
    return is_gather(node) and node.location.phase != "backward"


def _as_long_as(value: Value) -> Iterator[Value]:
    """Yield values made of a value that have its elements or its columns."""
    left, seen = [value], {value}
    while left:
        value = left.pop()
        yield value
        node = value.producer
        if node is None:
            continue
        same = any(has_trait(node, trait) for trait in _SAME_ELEMENTS)
        for one in node.operands:
            alike = same or _columns(one) == _columns(value) is not None
            if alike and one not in seen:
                seen.add(one)
                left.append(one)


def _columns(value: Value) -> Dim | None:
    shape = () if value.type is None else value.type.shape
    return shape[1] if len(shape) == _ROWS_AND_COLUMNS else None
