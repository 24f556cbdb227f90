"""A part of a graph in another type, with casts where values enter and leave it."""

from __future__ import annotations

from collections.abc import Collection, Container
from fnmatch import fnmatchcase

import attrs

from perfc.ir import DTYPES, DType, Graph, Node, Record, UsageError, Value
from perfc.ir.location import NOWHERE
from perfc.ir.node_kinds import has_trait, is_cast, is_view
from perfc.ir.opdef import Trait

PLAIN_FLOATS = frozenset(DTYPES[name] for name in ("f64", "f32", "f16", "bf16"))
"""Types that `module.to(dtype)` converts; 8-bit floats and integers stay."""


def convert_part(graph: Graph, low: DType, where: str, known: Container[Value]) -> None:
    """Let modules or nodes compute in another type.

    Args:
        graph: The graph, which is changed.
        low: The type.
        where: Pattern of modules, or of nodes.
        known: Values that are Python's numbers, which have no type on the device.

    """
    part = frozenset(node for node in graph if _lies_in(node, where))
    if not part:
        msg = f"where={where!r} of convert-dtype: {graph} has no such module or node"
        raise UsageError(msg)
    _Conversion(graph, low, part, known).run()


def convert_nodes(
    graph: Graph, low: DType, nodes: Collection[Node], known: Container[Value]
) -> None:
    """Let nodes compute in another type, and elementwise ops that lie between them.

    So no value is cast back only to be cast again.

    Args:
        graph: The graph, which is changed.
        low: The type.
        nodes: The nodes.
        known: Values that are Python's numbers, which have no type on the device.

    """
    part = set(nodes)
    for node in graph:
        if node not in part and _is_passed(node) and _reads_only(node, part):
            part.add(node)
    for node in reversed([*graph]):
        if node in part and node not in nodes and not _read_only_by(graph, node, part):
            part.remove(node)
    _Conversion(graph, low, frozenset(part), known).run()


def _is_passed(node: Node) -> bool:
    return not is_cast(node) and (has_trait(node, Trait.ELEMENTWISE) or is_view(node))


def _reads_only(node: Node, part: Container[Node]) -> bool:
    """Whether all floats that a node reads are made by a part."""
    floats = [
        value
        for value in node.operands
        if value.type is not None and value.type.dtype in PLAIN_FLOATS
    ]
    return bool(floats) and all(
        value.producer is not None and value.producer in part for value in floats
    )


def _read_only_by(graph: Graph, node: Node, part: Collection[Node]) -> bool:
    returned = graph.outputs
    return all(
        value not in returned and set(part).issuperset(graph.readers(value))
        for value in node.results
    )


def _lies_in(node: Node, where: str) -> bool:
    module = node.location.module
    return fnmatchcase(node.name, where) or (
        bool(module)
        and (fnmatchcase(module, where) or fnmatchcase(module, f"{where}.*"))
    )


@attrs.define(eq=False)
class _Conversion:
    """Retypes nodes, and puts casts around them, in program order.

    Attributes:
        graph: The graph.
        low: The type.
        part: The nodes that compute in it.
        known: Values without a type on the device.

    """

    graph: Graph
    low: DType
    part: frozenset[Node]
    known: Container[Value]
    _cast: dict[tuple[Value, DType], Value] = attrs.field(
        factory=dict["tuple[Value, DType]", Value], init=False
    )
    _wide: dict[Value, DType] = attrs.field(factory=dict[Value, DType], init=False)
    """Types that results of the part had before."""

    def run(self) -> None:
        """Go through the graph."""
        for value in self.graph.parameters:
            readers = [*self.graph.readers(value)]
            if readers and self.part.issuperset(readers) and self._is_wide(value):
                self._retype(value)
        self.graph.rewrite(self._visit)
        outputs = [
            self._casted(None, value, self._wide[value])
            if value in self._wide
            else value
            for value in self.graph.outputs
        ]
        self.graph.outputs = outputs

    def _visit(self, node: Node) -> None:
        inside = node in self.part
        for index, value in enumerate(node.operands):
            if inside and self._is_wide(value):
                found = self._casted(node, value, self.low)
                self.graph.set_operand(node, index, found)
            elif not inside and value in self._wide:
                found = self._casted(node, value, self._wide[value])
                self.graph.set_operand(node, index, found)
        if not inside:
            return
        changed = {
            name: self.low
            for name, item in node.attributes.items()
            if isinstance(item, DType) and item in PLAIN_FLOATS
        }
        if changed:
            self.graph.set_attributes(node, **changed)
        for value in node.results:
            if self._is_wide(value):
                assert value.type is not None  # it is of a type
                self._wide[value] = value.type.dtype
                self._retype(value)

    def _is_wide(self, value: Value) -> bool:
        dtype = None if value.type is None else value.type.dtype
        return dtype in PLAIN_FLOATS and dtype != self.low and value not in self.known

    def _retype(self, value: Value) -> None:
        assert value.type is not None  # it is of a type
        value.type = attrs.evolve(value.type, dtype=self.low)

    def _casted(self, node: Node | None, value: Value, dtype: DType) -> Value:
        """Return a value in another type: one cast for all that read it."""
        made = self._cast.get((value, dtype))
        if made is None:
            assert value.type is not None  # it is of a type
            name = self.graph.fresh_name(f"{value.name}.{dtype.name}")
            attributes = Record({"dtype": dtype})
            maker = node or value.producer
            location = NOWHERE if maker is None else maker.location
            cast = self.graph.add(
                "cast", [value], [name], attributes, location=location
            )
            (made,) = cast.results
            made.type = attrs.evolve(value.type, dtype=dtype)
            self._cast[value, dtype] = made
        return made
