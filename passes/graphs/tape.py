"""Writes typed nodes at the end of an op graph."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfc.ir import DTYPES, AttrValue, DType, Graph, Node, Record, TensorType, Value
from perfc.ir.dims import Dim
from perfc.ir.location import Location
from perfc.ir.support import VerifyError
from perfc.passes.shapes import Inference

_I64 = DTYPES["i64"]


@attrs.define(eq=False)
class Tape:
    """The end of a graph, where a transform writes what it derives.

    Attributes:
        graph: The graph.
        inference: Types what is written.
        location: Where the nodes belong.
        stem: What they are named for.
        constants: What its constants are named for.

    """

    graph: Graph
    inference: Inference
    location: Location = attrs.field(factory=Location)
    stem: str = ""
    constants: str = "training"
    _effects: dict[str, int] = attrs.field(factory=dict[str, int], init=False)
    _integers: dict[tuple[Dim, ...], Value] = attrs.field(
        factory=dict["tuple[Dim, ...]", Value], init=False
    )
    _numbers: dict[tuple[DType, float], Value] = attrs.field(
        factory=dict["tuple[DType, float]", Value], init=False
    )

    def op(self, op: str, *operands: Value, **attributes: AttrValue) -> Value:
        """Append a node of one result."""
        return self.node(
            op, operands, [self.graph.fresh_name(self._stem(op))], attributes
        ).results[0]

    def ops(
        self, op: str, count: int, *operands: Value, **attributes: AttrValue
    ) -> tuple[Value, ...]:
        """Append a node of *count* results."""
        results: list[str] = []
        for number in range(count):
            stem = f"{self._stem(op)}.{number}" if number else self._stem(op)
            results.append(self.graph.fresh_name(stem))
        return self.node(op, operands, results, attributes).results

    def effect(
        self, op: str, operands: Sequence[Value], name: str, /, **attributes: AttrValue
    ) -> None:
        """Append a node without results, called *name*, or *name* with a number."""
        number = self._effects[name] = self._effects.get(name, -1) + 1
        name = f"{name}_{number}" if number else name
        self.location = attrs.evolve(self.location, name=name)
        self.node(op, operands, (), attributes)

    def node(
        self,
        op: str,
        operands: Sequence[Value],
        results: Sequence[str],
        attributes: dict[str, AttrValue],
        types: Sequence[TensorType] = (),
    ) -> Node:
        """Append a node; *types* are those of results that no rule gives."""
        record = Record(attributes)
        node = self.graph.add(op, operands, results, record, location=self.location)
        for value, type_ in zip(node.results, types, strict=False):
            value.type = type_
        self.inference.infer(node)
        return node

    def reshape(self, x: Value, *shape: Dim) -> Value:
        """View *x* in another shape; itself, if it has that one."""
        if typed(x).shape == shape:
            return x
        return self.op("reshape", x, self.integers(*shape), allowzero=True)

    def cut(self, x: Value, bounds: tuple[Dim, Dim], axis: int) -> Value:
        """View a range of one axis."""
        start, end = map(self.integers, bounds)
        return self.op("slice", x, start, end, self.integers(axis))

    def turned(self, x: Value) -> Value:
        """View *x* with its last two axes swapped."""
        axes = tuple(range(typed(x).rank))
        return self.op("transpose", x, perm=(*axes[:-2], axes[-1], axes[-2]))

    def integers(self, *elements: Dim) -> Value:
        """Return a list of i64."""
        if elements not in self._integers:
            shape = (len(elements),)
            self._integers[elements] = self._constant(
                "ints", dtype=_I64, shape=shape, elements=elements
            )
        return self._integers[elements]

    def number(self, like: Value, number: float) -> Value:
        """Return one number, in the element type of *like*."""
        dtype = typed(like).dtype
        if (dtype, number) not in self._numbers:
            self._numbers[dtype, number] = self._constant(
                "number", dtype=dtype, shape=(), value=float(number)
            )
        return self._numbers[dtype, number]

    def full(self, type_: TensorType, number: float) -> Value:
        """Fill a new tensor with one number."""
        shape = self.integers(*type_.shape)
        return self.op("fill", shape, dtype=type_.dtype, value=float(number))

    def summed(self, x: Value, shape: tuple[Dim, ...]) -> Value:
        """Add up the axes along which *shape* was broadcast to that of *x*."""
        wide = typed(x).shape
        added = len(wide) - len(shape)
        axes = tuple(
            axis
            for axis, dim in enumerate(wide)
            if axis < added or (dim != 1 and shape[axis - added] == 1)
        )
        if axes:
            x = self.op("reduce", x, kind="sum", axes=axes, keepdims=True)
        return self.reshape(x, *shape)

    def _constant(self, stem: str, **attributes: AttrValue) -> Value:
        name = self.graph.fresh_name(f"{self.constants}.{stem}")
        return self.node("constant", (), [name], attributes).results[0]

    def _stem(self, op: str) -> str:
        return f"{self.stem}.{op}" if self.stem else op


def typed(value: Value) -> TensorType:
    """Return the type of a value that has one."""
    if value.type is None:
        msg = f"{value} has no type; run shape-inference first"
        raise VerifyError(msg)
    return value.type
