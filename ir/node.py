"""What an op graph is made of: values, nodes, and the slots where nodes read values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from perfc.ir.location import NOWHERE, Location
from perfc.ir.record import EMPTY, Record
from perfc.ir.types import TensorType

if TYPE_CHECKING:
    from perfc.ir.core import Graph

PARAM, BUFFER, CONST = "param", "buffer", "const"
"""Kinds of parameters, as printed."""


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
        """Whether it does more than make results; others wait for a collective."""
        return not self.results or any(map(self.attributes.get, ("in_place", "group")))


@attrs.frozen(eq=False)
class Replacement:
    """One new node that computes *result* of an old one; see `Graph.replace`."""

    op: str
    operands: tuple[Value, ...]
    attributes: Record
    result: Value
    location: Location
