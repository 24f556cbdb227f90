"""One ONNX node as the op map sees it: operands, attributes, and where to write."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from perfc.frontends.onnx.protobuf import onnx
from perfc.frontends.onnx.reader import Constant
from perfc.ir import DTYPES, AttrValue, Graph, Node, Value
from perfc.ir.location import Location
from perfc.ir.support import UnsupportedModelError


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

    def required(self, index: int) -> Value:
        """Return operand *index*."""
        value = self.operand(index)
        if value is None:
            msg = f"{self.op} {self.location.name!r} has no input {index}"
            raise UnsupportedModelError(msg)
        return value

    def rank(self, index: int) -> int | None:
        """Return the rank of operand *index*, or None if nothing declares it."""
        value = self.operand(index)
        return None if value is None or value.type is None else value.type.rank

    def length(self, index: int) -> int | None:
        """Return the number of elements of operand *index*, or None if not known."""
        value = self.operand(index)
        constant = self.constants.get(value) if value is not None else None
        type_ = constant.type if constant else None if value is None else value.type
        count = None if type_ is None else type_.numel
        return count if isinstance(count, int) else None

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Return a list-of-int attribute, or None if absent."""
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

    def constant_integer(self, index: int) -> int | None:
        """Return the one element of a constant operand, or None."""
        elements = self.constant_integers(index)
        return elements[0] if elements is not None and len(elements) == 1 else None

    def constant_number(self, index: int) -> float | None:
        """Return the number that all elements of a constant operand are, or None."""
        value = self.operand(index)
        constant = self.constants.get(value) if value is not None else None
        return None if constant is None else constant.value

    def constant_numbers(self, index: int) -> tuple[float, ...] | None:
        """Return the elements of a short constant list of floats, or None."""
        value = self.operand(index)
        constant = self.constants.get(value) if value is not None else None
        return None if constant is None else constant.numbers

    def attribute(self, name: str, default: AttrValue) -> AttrValue:
        """Return an attribute of the kind of *default*; ONNX's flags are ints."""
        match default:
            case bool():
                return bool(self.integer(name, default))
            case int():
                return self.integer(name, default)
            case float():
                return self.number(name, default)
            case str():
                return self.text(name, default)
            case tuple():
                found = self.integers(name)
                return default if found is None else found
            case _:
                return self.attributes.get(name, default)

    def emit(
        self,
        op: str,
        operands: tuple[Value, ...] | None = None,
        attributes: Mapping[str, AttrValue] | None = None,
        regions: tuple[Graph, ...] = (),
        *,
        results: tuple[str, ...] | None = None,
    ) -> Node:
        """Add the node that defines this node's results, or the named ones."""
        return self.graph.add(
            op,
            self.present if operands is None else operands,
            self.results if results is None else results,
            attributes or {},
            regions=regions,
            location=self.location,
        )

    def number_constant(self, number: float) -> Value:
        """Add a scalar constant that this node needs, and return it."""
        dtype = DTYPES["f32"]
        given = self.operand(0)
        if given is not None and given.type is not None:
            dtype = given.type.dtype
        attributes: dict[str, AttrValue] = {
            "dtype": dtype,
            "shape": (),
            "value": number,
        }
        return self.emit_helper("constant", (), attributes)

    def emit_helper(
        self,
        op: str,
        operands: tuple[Value, ...],
        attributes: Mapping[str, AttrValue] | None = None,
    ) -> Value:
        """Add a node in front that this node needs, and return its result."""
        stem = self.results[0] if self.results else self.op
        name = self.graph.fresh_name(f"{stem}.{op}")
        node = self.graph.add(
            op, operands, [name], attributes or {}, location=self.location
        )
        return node.results[0]


Handler = Callable[[OnnxNode], bool]
"""Writes a node into its graph; False if it cannot, so that it stays unknown."""


def plain(
    op: str,
    *,
    operands: int | None = None,
    fixed: Mapping[str, AttrValue] | None = None,
    **defaults: AttrValue,
) -> Handler:
    """Make the handler of a node that is one op here.

    Args:
        op: The op.
        operands: How many of the operands that are there it takes; None for all.
        fixed: Attributes that the ONNX op implies.
        defaults: Attributes that have the same name in ONNX, and their defaults.

    """

    def handler(node: OnnxNode) -> bool:
        attributes = dict(fixed or {})
        for name, default in defaults.items():
            value = node.attribute(name, default)
            if value is not None:
                attributes[name] = value
        node.emit(op, node.present[:operands], attributes)
        return True

    return handler
