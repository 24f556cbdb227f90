"""What names and attributes mean: in the file's own graph, or in a function's body."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping

import attrs

from perfc.frontends.onnx.protobuf import onnx
from perfc.frontends.onnx.reader import utf8
from perfc.ir import Graph, Value
from perfc.ir.location import Location


@attrs.frozen(eq=False)
class Attribute:
    """An attribute, and the scope that it was written in."""

    proto: onnx.AttributeProto
    scope: Scope


@attrs.frozen(eq=False)
class Call:
    """One call of a function: what its body sees of the caller.

    Attributes:
        name: What the values of the body have in front of their names.
        location: Where the call is from.
        attributes: The function's attributes by name, as the call sets them.
        results: What the caller names the function's outputs.

    """

    name: str
    location: Location
    attributes: Mapping[str, Attribute]
    results: Mapping[str, str]


@attrs.frozen(eq=False)
class Scope:
    """Names and attributes of one graph.

    The names of the file's own graphs are those of the op graph. The body of a
    function has names of its own, which get the call's name in front.

    Attributes:
        opset: Version of the default domain.
        call: The call whose function's body this is, or None.
        names: Values by the names of the function's body; unused without a call.

    """

    opset: int
    call: Call | None = None
    names: ChainMap[str, Value | None] = attrs.field(
        factory=ChainMap[str, "Value | None"]
    )

    def region(self) -> Scope:
        """Return the scope of a graph inside this one."""
        return attrs.evolve(self, names=self.names.new_child())

    def find(self, name: str, graph: Graph) -> Value | None:
        """Return the value called *name*, or None."""
        return graph.find(name) if self.call is None else self.names.get(name)

    def is_absent(self, name: str) -> bool:
        """Whether *name* is left out, by the node or by the call."""
        if not name or self.call is None:
            return not name
        return name in self.names and self.names[name] is None

    def new_name(self, name: str, graph: Graph) -> str:
        """Return the name in *graph* of *name*, which is defined here."""
        name = utf8(name)
        if self.call is None:
            return name
        outermost = len(self.names.maps) == 1
        if outermost and name in self.call.results:
            return self.call.results[name]
        return graph.fresh_name(f"{self.call.name}/{name}")

    def define(self, name: str, value: Value | None) -> None:
        """Note the value that *name* stands for."""
        if self.call is not None:
            self.names[name] = value

    def attributes(self, node: onnx.NodeProto) -> Iterator[tuple[str, Attribute]]:
        """Return the attributes of *node*; references become what the call sets.

        One that refers to an attribute which is set nowhere is left out.
        """
        for proto in node.attribute:
            if not proto.ref_attr_name:
                yield utf8(proto.name), Attribute(proto, self)
            elif self.call is not None and proto.ref_attr_name in self.call.attributes:
                yield utf8(proto.name), self.call.attributes[proto.ref_attr_name]
