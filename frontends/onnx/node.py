"""One ONNX node as the op map sees it: operands, attributes, and where to write."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from perfc.frontends.onnx.protobuf import onnx
from perfc.frontends.onnx.reader import Constant
from perfc.ir import (
    AttrValue,
    Graph,
    Location,
    Node,
    UnsupportedModelError,
    Value,
)


@attrs.define(eq=False)
class OnnxNode:
    """An ONNX node on its way into a graph.

    Attributes:
        op: ONNX's op type, with its domain unless that is the default one.
        operands: Values; None for an optional input left out.
        results: Names of its results.
        attributes: Attributes by name; None for those that are tensors or graphs.
        tensors: Tensor attributes by name.
        regions: Graph attributes by name, already imported.
        location: Where it comes from.
        graph: Graph it goes into.
        constants: Constants by value, to look operands up.
        opset: Version of the default domain that the op is meant in.

    """

    op: str
    operands: tuple[Value | None, ...]
    results: tuple[str, ...]
    attributes: Mapping[str, AttrValue]
    tensors: Mapping[str, onnx.TensorProto]
    regions: Mapping[str, Graph]
    location: Location
    graph: Graph
    constants: dict[Value, Constant]
    opset: int

    @property
    def present(self) -> tuple[Value, ...]:
        """The operands that are there."""
        return tuple(v for v in self.operands if v is not None)

    def operand(self, index: int) -> Value | None:
        """Return operand *index*, or None if it was left out."""
        return self.operands[index] if index < len(self.operands) else None

    def rank(self, index: int) -> int | None:
        """Return the rank of operand *index*, or None if nothing declares it."""
        value = self.operand(index)
        return None if value is None or value.type is None else value.type.rank

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Return a list-of-int attribute, or None if absent.

        Raises:
            UnsupportedModelError: it is something else. So do the next methods.

        """
        value = self.attributes.get(name, ())
        if isinstance(value, tuple):
            numbers = tuple(v for v in value if isinstance(v, int))
            if len(numbers) == len(value):
                return numbers if name in self.attributes else None
        raise self._unlike(name, "a list of integers")

    def integer(self, name: str, default: int) -> int:
        """Return an int attribute."""
        value = self.attributes.get(name, default)
        if not isinstance(value, int):
            raise self._unlike(name, "an integer")
        return value

    def number(self, name: str, default: float) -> float:
        """Return a float attribute."""
        value = self.attributes.get(name, default)
        if not isinstance(value, float):
            raise self._unlike(name, "a number")
        return value

    def text(self, name: str, default: str) -> str:
        """Return a string attribute."""
        value = self.attributes.get(name, default)
        if not isinstance(value, str):
            raise self._unlike(name, "a string")
        return value

    def _unlike(self, name: str, expected: str) -> UnsupportedModelError:
        found = self.attributes[name]
        shown = "of another kind" if found is None else repr(found)[:60]
        return UnsupportedModelError(
            f"{self.op} {self.location.name!r}: attribute {name!r} is {shown}, "
            f"expected {expected}"
        )

    def constant_integers(self, index: int) -> tuple[int, ...] | None:
        """Return the elements of a constant operand, or None."""
        value = self.operand(index)
        constant = self.constants.get(value) if value is not None else None
        return None if constant is None else constant.elements

    def emit(
        self,
        op: str,
        operands: tuple[Value, ...] | None = None,
        attributes: Mapping[str, AttrValue] | None = None,
        regions: tuple[Graph, ...] = (),
    ) -> Node:
        """Add the node that defines this node's results."""
        return self.graph.add(
            op,
            self.present if operands is None else operands,
            self.results,
            attributes or {},
            regions=regions,
            location=self.location,
        )

    def emit_helper(
        self, op: str, operands: tuple[Value, ...], attributes: Mapping[str, AttrValue]
    ) -> Value:
        """Add a node in front that this node needs, and return its result."""
        stem = self.results[0] if self.results else self.op
        name = self.graph.fresh_name(f"{stem}.{op}")
        node = self.graph.add(op, operands, [name], attributes, location=self.location)
        return node.results[0]


Handler = Callable[[OnnxNode], bool]
"""Writes a node into its graph; False if it cannot, so that it stays unknown."""
