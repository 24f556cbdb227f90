"""What a graph is made of: values and nodes. They are changed only through `Graph`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from perfc.ir.record import EMPTY, Record
from perfc.ir.types import TensorType

if TYPE_CHECKING:
    from perfc.ir.core import Graph


@attrs.frozen
class Location:
    """Where a node comes from.

    Attributes:
        name: What the frontend calls the node.
        module: Path of the module that contains it, as `top_l.0`.
        source: File and line of the model's code.
        phase: `forward`, `backward`, `optimizer` or `loss`.
        origin: The framework call it was exported from, as its exporter wrote
            it: `aten.embedding_bag.padding_idx(%w, %i, ...)`.

    """

    name: str = ""
    module: str = ""
    source: str = ""
    phase: str = "forward"
    origin: str = ""


NOWHERE = Location()
"""The location of a node of which nothing is known."""
LOCATION_FIELDS = tuple(field.name for field in attrs.fields(Location))


@attrs.define(eq=False)
class Value:
    """An SSA value: an input, a parameter, a state, or one result of one node."""

    name: str
    type: TensorType | None
    producer: Node | None = attrs.field(default=None, repr=False)

    def __str__(self) -> str:
        return f"%{self.name}"


@attrs.frozen
class Use:
    """One operand slot."""

    node: Node
    index: int


@attrs.define(eq=False)
class Node:
    """One op applied to values. Create it with `Graph.add`."""

    op: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attributes: Record = EMPTY
    regions: tuple[Graph, ...] = attrs.field(default=(), repr=False)
    location: Location = NOWHERE

    def __str__(self) -> str:
        results = ", ".join(map(str, self.results))
        return f"{results} = {self.op}" if results else self.op

    @property
    def name(self) -> str:
        """What launches and reports call it: its first result, or itself."""
        return self.results[0].name if self.results else self.location.name or self.op

    @property
    def has_effect(self) -> bool:
        """Whether the node does something besides making its results."""
        return not self.results or bool(self.attributes.get("in_place"))
