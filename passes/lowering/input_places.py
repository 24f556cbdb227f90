"""Places of the inputs of an iteration when it starts, and which of them are state."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Mapping

import attrs

from perfc.ir import Graph, Node, UsageError, Value
from perfc.ir.choices import INPUTS
from perfc.ir.node_kinds import is_concat, is_view

ON_DEVICE = INPUTS[-1]
_NAMED = 4
"""Inputs that a message names."""
_WRITES = frozenset(
    ("assign", "index_put", "scatter_elements", "scatter_nd", "tensor_scatter")
)
"""Ops that write some elements of their first operand."""


@attrs.frozen
class InputPlaces:
    """A place for all inputs but some, and places of those, by patterns of names.

    Attributes:
        place: Of inputs that no pattern is of; of state it is the device.
        named: Patterns and their places; the last one that a name fits holds.

    """

    place: str
    named: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, text: str) -> InputPlaces:
        """Read `host-pinned,past_*=device`."""
        first, *more = text.split(",")
        named = tuple(
            (part.rpartition("=")[0], part.rpartition("=")[2]) for part in more
        )
        places = [first, *(place for _, place in named)]
        wrong = [place for place in places if place not in INPUTS]
        if wrong or not all(pattern for pattern, _ in named):
            msg = (
                f"inputs={text!r}: expected {', '.join(INPUTS)}, and maybe places of "
                "some inputs behind it, as host-pinned,past_*=device"
            )
            raise UsageError(msg)
        if len({*places} - {ON_DEVICE}) > 1:
            msg = f"inputs={text!r}: expected one place of the host, and device"
            raise UsageError(msg)
        return cls(first, named)

    @property
    def on_host(self) -> str:
        """The place of those that are on the host; `device` if there are none."""
        places = (self.place, *(place for _, place in self.named))
        return next((place for place in places if place != ON_DEVICE), ON_DEVICE)

    def check(self, names: Collection[str]) -> None:
        """Refuse a pattern that fits no input."""
        for pattern, place in self.named:
            if not fnmatch.filter(names, pattern):
                msg = (
                    f"inputs={pattern}={place}: no input has such a name; there are "
                    f"{some_of(names)}"
                )
                raise UsageError(msg)

    def kept(self, graph: Graph) -> frozenset[Value]:
        """Return the inputs of a graph that are on the device when it starts."""
        state = state_of(graph)
        found = dict.fromkeys(graph.inputs, self.place)
        found.update(dict.fromkeys(state, ON_DEVICE))
        for pattern, place in self.named:
            fits = [v for v in found if fnmatch.fnmatch(v.name, pattern)]
            found.update(dict.fromkeys(fits, place))
        return frozenset(value for value, place in found.items() if place == ON_DEVICE)


def state_of(graph: Graph) -> Mapping[Value, Node]:
    """Return the inputs that a step changes for the next one, and what changes them.

    Such as a cache of keys and values: a step writes rows of it, or appends them, reads
    the result and gives it back. Who runs steps has it on the device already.
    """
    inputs = set(graph.inputs)
    given_back = {value for output in graph.outputs for value in _chain(output)}
    found: dict[Value, Node] = {}
    for node in graph:
        writes, appends = node.op in _WRITES, is_concat(node) and len(node.operands) > 1
        if not writes and not appends:
            continue
        back = given_back & {*node.results} and graph.uses(node.results[0])
        if not back and not (writes and node.attributes.flag("in_place")):
            continue
        for operand in node.operands[:1] if writes else node.operands:
            found.update((v, node) for v in _chain(operand) if v in inputs)
    return found


def _chain(value: Value) -> Iterable[Value]:
    """Yield a value, and those that it is a view or a copy of."""
    yield value
    while (node := value.producer) is not None:
        alone = is_concat(node) and len(node.operands) == 1
        if not (is_view(node) or node.op == "copy" or alone):
            return
        value = node.operands[0]
        yield value


def some_of(names: Collection[str]) -> str:
    """Name inputs: the first ones of many, and how many more there are."""
    first, more = [*names][:_NAMED], len(names) - _NAMED
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")
