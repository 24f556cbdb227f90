"""Write graphs as perfc assembly; `parser.py` reads it back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from perfc.ir.core import PARAM, Graph, Node, Value
from perfc.ir.location import LOCATION_FIELDS, NOWHERE, Location
from perfc.ir.record import format_items
from perfc.ir.support import name_text, quote, word_text
from perfc.ir.types import TensorType

_WINDOW = 10

Comment = Callable[[Node], str]
"""Text to print behind a node, without the slashes; empty for none."""


def print_graph(graph: Graph, comment: Comment | None = None) -> str:
    """Return the canonical text of *graph*, facts as trailing comments."""
    lines = [f"graph @{name_text(graph.name)}({_arguments(graph)}) {{"]
    lines += _body(graph, "  ", comment)
    return "\n".join([*lines, "}"]) + "\n"


def print_window(graph: Graph, node: Node) -> str:
    """Return *node* with some neighbours, the node marked."""
    nodes = list(graph)
    middle = nodes.index(node)
    lines: list[str] = []
    for other in nodes[max(0, middle - _WINDOW) : middle + _WINDOW + 1]:
        mark = "> " if other is node else "  "
        lines += [mark + line for line in _node(other, "", None)]
    return "\n".join(lines)


def comment_text(note: str) -> str:
    """Write *note* as a comment at the end of a line."""
    return "  // " + note.replace("\n", " ") if note else ""


def _arguments(graph: Graph) -> str:
    inputs = [f"{_value(v)}: {_type(v.type)}" for v in graph.inputs]
    kinds = [graph.untrained.get(value, PARAM) for value in graph.parameters]
    parameters = [
        f"{kind} {_value(v)}: {_type(v.type)}"
        for kind, v in zip(kinds, graph.parameters, strict=True)
    ]
    states = [f"state {_value(v)}: {_type(v.type)}" for v in graph.states]
    return ", ".join(inputs + parameters + states)


def _body(graph: Graph, indent: str, comment: Comment | None) -> Iterator[str]:
    for node in graph:
        yield from _node(node, indent, comment)
    outputs = ", ".join(map(_value, graph.outputs))
    yield f"{indent}return {outputs}".rstrip()


def _node(node: Node, indent: str, comment: Comment | None) -> Iterator[str]:
    results = ", ".join(map(_value, node.results))
    operands = ", ".join(map(_value, node.operands))
    head = f"{results} = " if results else ""
    line = f"{indent}{head}{word_text(node.op)}({operands})"
    if node.attributes:
        line += " {" + format_items(node.attributes) + "}"
    for region in node.regions:
        yield f"{line} region({_arguments(region)}) {{"
        yield from _body(region, indent + "  ", comment)
        line = indent + "}"
    if node.results:
        line += " : " + ", ".join(_type(v.type) for v in node.results)
    line += _location(node.location)
    yield line + (comment_text(comment(node)) if comment is not None else "")


def _location(location: Location) -> str:
    if location is NOWHERE:
        return ""
    items = ", ".join(
        f"{name} = {quote(text)}"
        for name in LOCATION_FIELDS
        if (text := getattr(location, name)) != getattr(NOWHERE, name)
    )
    return f" loc{{{items}}}" if items else ""


def _type(type_: TensorType | None) -> str:
    return "?" if type_ is None else str(type_)


def _value(value: Value) -> str:
    return "%" + name_text(value.name)
