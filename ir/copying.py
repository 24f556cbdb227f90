"""Copies of graphs with numbers, or other dimensions, in place of symbols."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.ir.core import PARAM, Graph, Value
from perfc.ir.dims import Dim, Expr, evaluate
from perfc.ir.record import AttrValue, Record
from perfc.ir.types import TensorType


def bound_copy(graph: Graph, bindings: Mapping[str, Dim]) -> Graph:
    """Return a copy of *graph*; dimensions whose symbols are all bound are numbers.

    Symbols bound to expressions become these. Without bindings it is a copy as it is.
    """
    made = Graph(graph.name)
    _Copy(bindings).fill(made, graph)
    return made


@attrs.frozen(eq=False)
class _Copy:
    """One copy of a graph and its regions."""

    bindings: Mapping[str, Dim]
    values: dict[Value, Value] = attrs.field(factory=dict[Value, Value], init=False)

    def fill(self, made: Graph, graph: Graph) -> None:
        for value in graph.inputs:
            type_ = self._bound(value.type)
            self.values[value] = made.add_input(value.name, type_)
        for value in graph.parameters:
            type_ = self._bound(value.type)
            if type_ is not None:
                kind = graph.untrained.get(value, PARAM)
                self.values[value] = made.add_parameter(value.name, type_, kind)
        for value in graph.states:
            type_ = self._bound(value.type)
            if type_ is not None:
                self.values[value] = made.add_state(value.name, type_)
        for node in graph:
            regions: list[Graph] = []
            for region in node.regions:
                regions.append(Graph(region.name, made))
                self.fill(regions[-1], region)
            copy = made.add(
                node.op,
                [self.values[value] for value in node.operands],
                [value.name for value in node.results],
                self._bound_record(node.attributes),
                regions=tuple(regions),
                location=node.location,
            )
            for old, new in zip(node.results, copy.results, strict=True):
                new.type = self._bound(old.type)
                self.values[old] = new
        made.outputs = [self.values[value] for value in graph.outputs]

    def _bound_record(self, record: Record) -> Record:
        return bind_record(record, self.bindings) if self.bindings else record

    def _bound(self, type_: TensorType | None) -> TensorType | None:
        if type_ is None or type_.symbols().isdisjoint(self.bindings):
            return type_
        shape = tuple(self._number(dim) for dim in type_.shape)
        return attrs.evolve(type_, shape=shape).checked()

    def _number(self, dim: Dim) -> Dim:
        if isinstance(dim, Expr) and dim.symbols() <= self.bindings.keys():
            number: Dim = evaluate(dim, self.bindings)
            return number
        return dim


def bind_record(record: Record, bindings: Mapping[str, Dim]) -> Record:
    """Put numbers, or expressions, in place of the symbols of an attribute record."""
    if not record.is_symbolic:
        return record
    return Record({name: _bind(value, bindings) for name, value in record.items()})


def _bind(value: AttrValue, bindings: Mapping[str, Dim]) -> AttrValue:
    match value:
        case Expr():
            number: Dim = evaluate(value, bindings)
            return number
        case Record():
            return bind_record(value, bindings)
        case tuple():
            return tuple(_bind(item, bindings) for item in value)
        case _:
            return value
