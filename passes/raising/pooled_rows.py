"""Trace a value in a loop's body back to the rows of a table that it pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

import attrs

from perfc.ir import Graph, Node, Value

SAME_SHAPE = frozenset({"identity", "cast", "cast_like"})
"""Ops that keep elements and shape."""

SAME_ELEMENTS = SAME_SHAPE | {"reshape", "unsqueeze", "squeeze"}
"""Ops that keep the elements, in order."""

SAME_RANK = SAME_SHAPE | {"slice", "split"}
"""Ops that keep the number of axes."""

_MAX_STEPS = 60
"""Longer chains than any exporter writes are not followed."""

_MATRIX_RANK = 2


def looked_through(value: Value, ops: AbstractSet[str]) -> Value:
    """Follow operand 0 back through *ops*."""
    producer = value.producer
    while producer is not None and producer.op in ops:
        value = producer.operands[0]
        producer = value.producer
    return value


def elements_of(value: Value) -> tuple[object, ...] | None:
    """Return the elements of a constant integer tensor, or None."""
    producer = looked_through(value, SAME_ELEMENTS).producer
    if producer is None or producer.op != "constant":
        return None
    elements = producer.attributes.get("elements")
    return elements if isinstance(elements, tuple) else None


@attrs.frozen
class Rows:
    """Rows of a table, one per lookup, maybe of one bag only.

    Attributes:
        gather: The gather of the table's rows.
        factor: What each row is multiplied by, or None.
        padding_index: Row that does not count, or None.

    """

    gather: Node
    factor: Value | None = None
    padding_index: int | None = None


@attrs.frozen
class Pooled:
    """One row: the rows of a bag, reduced.

    Attributes:
        rows: What is reduced.
        kinds: How; an exporter may spell out special cases.
        keeps_axis: Whether the result is a matrix of one row, not a vector.

    """

    rows: Rows
    kinds: frozenset[str]
    keeps_axis: bool


@attrs.frozen
class Zero:
    """A constant of zeros: the result for an empty bag."""


Traced: TypeAlias = Rows | Pooled | Zero | None
"""None for anything that is not on the way from a table to a pooled row."""


@attrs.define(eq=False)
class Tracer:
    """Traces values of one loop's body, each once.

    Attributes:
        body: Nodes of the body and of all within it.

    """

    body: AbstractSet[Node]
    _known: dict[Value, Traced] = attrs.field(
        factory=dict["Value", "Traced"], init=False
    )
    _steps: int = attrs.field(default=0, init=False)

    def trace(self, value: Value) -> Traced:
        """Tell what *value* is."""
        value = looked_through(value, SAME_SHAPE)
        producer = value.producer
        rule = None if producer is None else _RULES.get(producer.op)
        if producer is None or rule is None or self._steps >= _MAX_STEPS:
            return None
        if value not in self._known:
            self._steps += 1
            self._known[value] = rule(self, producer, producer.results.index(value))
            self._steps -= 1
        return self._known[value]


_MODES = ("sum", "mean", "max")
_SUM, _MEAN = frozenset({"sum"}), frozenset({"mean"})


def _either(branches: Sequence[Traced]) -> Traced:
    """What holds whichever branch is taken; zeros stand for an empty bag."""
    parts = [part for part in branches if not isinstance(part, Zero)]
    pooled = [part for part in parts if isinstance(part, Pooled)]
    if not pooled or len(pooled) < len(parts):
        same = bool(parts) and all(part == parts[0] for part in branches)
        return parts[0] if same else None
    kinds = frozenset[str]().union(*(part.kinds for part in pooled))
    joined = {attrs.evolve(part, kinds=kinds) for part in pooled}
    return joined.pop() if len(joined) == 1 else None


def _padding_index(loop: Node) -> int | None:
    """The row that a loop over the lookups of a bag leaves out.

    It keeps the positions whose index is not equal to one constant.
    """
    constants = [
        elements_of(operand)
        for node in _equals(loop.regions[0])
        for operand in node.operands
    ]
    found = [c for c in constants if c is not None]
    if len(found) != 1 or len(found[0]) != 1 or not isinstance(found[0][0], int):
        return None
    return found[0][0]


def _equals(region: Graph) -> list[Node]:
    return [node for node in region if node.op == "equal"]


def _constant(tracer: Tracer, node: Node, index: int) -> Traced:
    return Zero() if node.attributes.get("value") == 0 else None


def _gather(tracer: Tracer, node: Node, index: int) -> Traced:
    if node.attributes.integer("axis") != 0:
        return None
    value = node.operands[0]
    type_ = value.type
    if (
        value.producer is None
        and type_ is not None
        and type_.dtype.is_float
        and type_.rank == _MATRIX_RANK
    ):
        return Rows(node)
    rows = tracer.trace(node.operands[0])
    kept = looked_through(node.operands[1], SAME_SHAPE).producer
    if not isinstance(rows, Rows) or kept is None or kept not in tracer.body:
        return None
    padding_index = _padding_index(kept) if kept.op == "loop" else None
    if padding_index is None or rows.padding_index is not None:
        return None
    return attrs.evolve(rows, padding_index=padding_index)


def _slice(tracer: Tracer, node: Node, index: int) -> Traced:
    """Cut the rows; bounds without axes and steps are those of the first axes."""
    rows = tracer.trace(node.operands[0])
    bounds = [elements_of(value) for value in node.operands[3:]] or [(0,), (1,)]
    return rows if isinstance(rows, Rows) and bounds == [(0,), (1,)] else None


def _mul(tracer: Tracer, node: Node, index: int) -> Traced:
    for rows_value, factor in (node.operands, node.operands[::-1]):
        rows = tracer.trace(rows_value)
        if isinstance(rows, Rows) and rows.factor is None:
            alone = tracer.trace(factor) is None
            return attrs.evolve(rows, factor=factor) if alone else None
    return None


def _div(tracer: Tracer, node: Node, index: int) -> Traced:
    """A sum divided by the number of rows, itself a number from the bounds."""
    pooled = tracer.trace(node.operands[0])
    if not isinstance(pooled, Pooled) or pooled.kinds != _SUM:
        return None
    count = looked_through(node.operands[1], SAME_ELEMENTS).producer
    if count is None or count not in tracer.body or count.op != "sub":
        return None
    return attrs.evolve(pooled, kinds=_MEAN)


def _reduce(tracer: Tracer, node: Node, index: int) -> Traced:
    rows = tracer.trace(node.operands[0])
    kind = node.attributes.text("kind")
    over_rows = node.attributes.integers("axes") in ((0,), (-_MATRIX_RANK,))
    if not isinstance(rows, Rows) or not over_rows or kind not in _MODES:
        return None
    return Pooled(rows, frozenset({kind}), node.attributes.flag("keepdims"))


def _if(tracer: Tracer, node: Node, index: int) -> Traced:
    if any(index >= len(region.outputs) for region in node.regions):
        return None
    branches = [tracer.trace(region.outputs[index]) for region in node.regions]
    return _either(branches)


_RULES: Mapping[str, Callable[[Tracer, Node, int], Traced]] = {
    "constant": _constant,
    "gather": _gather,
    "slice": _slice,
    "mul": _mul,
    "div": _div,
    "reduce": _reduce,
    "if": _if,
}
