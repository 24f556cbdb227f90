"""The IR verifier: every invariant, each in one place."""

from __future__ import annotations

from collections.abc import Iterable

from perfc.ir import text
from perfc.ir.core import Graph, Node, Value
from perfc.ir.opdef import OpDef, OpRegistry
from perfc.ir.support import UnknownOpError, VerifyError


def verify(graph: Graph, ops: OpRegistry) -> None:
    """Check the structure of *graph* and its regions."""
    readers = _Scope(ops, {}).verify(graph)
    if graph.parent is None and readers != sum(map(len, graph.nest.readers.values())):
        msg = f"use lists of @{graph.name} name nodes that are not in it"
        raise VerifyError(msg)


class _Scope:
    """The values visible at one point, by name."""

    def __init__(self, ops: OpRegistry, visible: dict[str, Value]) -> None:
        self._ops = ops
        self._visible = visible

    def verify(self, graph: Graph) -> int:
        """Return how many pairs of a value and a node that reads it there are."""
        self._define(graph.arguments(), graph, str(graph))
        readers = 0
        for node in graph:
            problem = self._shape_problem(node, graph) or self._edge_problem(
                node, graph
            )
            if problem is not None:
                error = VerifyError(f"{node}: {problem}")
                error.add_note(text.print_window(graph, node))
                raise error
            readers += len(set(node.operands))
            readers += sum(map(self.verify, node.regions))
            self._define(node.results, graph, str(node))
        for output in graph.outputs:
            if self._visible.get(output.name) is not output:
                msg = f"graph output {output} is not defined in @{graph.name}"
                raise VerifyError(msg)
        if graph.parent is not None:
            for value in graph.values():
                del self._visible[value.name]
        return readers

    def _define(self, values: Iterable[Value], graph: Graph, where: str) -> None:
        for value in values:
            if value.name in self._visible:
                msg = f"{where}: {value} is defined twice"
                raise VerifyError(msg)
            if graph.find(value.name) is not value:
                msg = f"{where}: {value} is not known by its name"
                raise VerifyError(msg)
            self._visible[value.name] = value

    def _shape_problem(self, node: Node, graph: Graph) -> str | None:
        try:
            opdef = self._ops[node.op]
        except UnknownOpError as error:
            return str(error)
        problem = opdef.arity_problem(len(node.operands)) or _result_problem(
            node, opdef
        )
        if problem is not None:
            return problem
        if len(node.regions) != opdef.regions:
            return f"expected {opdef.regions} regions, got {len(node.regions)}"
        if any(region.parent is not graph for region in node.regions):
            return "a region belongs to another graph"
        return _attribute_problem(node, opdef)

    def _edge_problem(self, node: Node, graph: Graph) -> str | None:
        for operand in node.operands:
            if self._visible.get(operand.name) is not operand:
                return f"operand {operand} is used before it is defined"
            if node not in graph.readers(operand):
                return f"missing from the use list of {operand}"
        for result in node.results:
            if result.producer is not node:
                return f"result {result} names another producer"
        return None


_WANTS = "wants"
"""Attribute of gradients: their names, one a result."""


def _result_problem(node: Node, opdef: OpDef) -> str | None:
    if opdef.results is not None and len(node.results) != opdef.results:
        return f"expected {opdef.results} results, got {len(node.results)}"
    wants = node.attributes.get(_WANTS)
    if isinstance(wants, tuple) and len(wants) != len(node.results):
        return f"wants {len(wants)} gradients, has {len(node.results)} results"
    return None


def _attribute_problem(node: Node, opdef: OpDef) -> str | None:
    for name in node.attributes:
        if name not in opdef.attributes:
            return f"unknown attribute {name!r}"
    for name, allowed in opdef.attributes.items():
        value = node.attributes.get(name)
        if value is None:
            if type(None) not in allowed:
                return f"attribute {name!r} is missing"
            continue
        # To Python a bool is an int; to an op it is not.
        fits = (
            bool in allowed if isinstance(value, bool) else isinstance(value, allowed)
        )
        if not fits:
            kinds = ", ".join(t.__name__ for t in allowed if t is not type(None))
            return f"attribute {name!r} is {value!r}, expected {kinds}"
    return None
