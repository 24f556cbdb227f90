"""The pass `regather`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import attrs

from perfc.ir import BUILTIN_OPS, AnyKey, Graph, Node, Program, UsageError, Value
from perfc.passes.base import PassContext, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.gradient import BACKWARD

_FORWARD = "forward"


@attrs.frozen
class Regather(Transform):
    """Forget gathered parameters behind forward; gather them again for backward.

    As PyTorch's FSDP does with `reshard_after_forward`. What the root gathers stays:
    backward begins with it. Run it behind `training`; `fsdp` has it run.

    Attributes:
        prefetch: `pre`: a unit is gathered again in front of the backward pass of the
            unit that comes before it (`BackwardPrefetch.BACKWARD_PRE`); `none`: in
            front of its own.

    Raises:
        UsageError: the option has another value.

    """

    name: ClassVar[str] = "regather"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})
    preserves: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    prefetch: str = "pre"

    def __attrs_post_init__(self) -> None:
        """Check the option."""
        if self.prefetch not in ("pre", "none"):
            msg = f"prefetch={self.prefetch!r} of {self.name}: expected pre, none"
            raise UsageError(msg)

    def run(self, program: Program, ctx: PassContext) -> None:
        """Change every op graph."""
        found = 0
        for rank in program.classes:
            if rank.ops is not None:
                units = sorted(_units(rank.ops), key=lambda unit: unit.first)
                self._write(rank.ops, units)
                found += len(units)
        if not found:
            ctx.note("nothing-gathered", "backward reads no gathered parameters")

    def _write(self, graph: Graph, units: Sequence[_Unit]) -> None:
        """Put a copy of what gathers each unit where it is needed, or earlier."""
        order = list(graph)
        starts: dict[Node, list[_Unit]] = {}
        for place, unit in enumerate(units):
            ahead = self.prefetch == "pre" and place > 0
            first = units[place - 1].first if ahead else unit.first
            starts.setdefault(order[first], []).append(unit)

        def step(node: Node) -> None:
            for unit in starts.get(node, ()):
                unit.gather_again(graph)

        graph.rewrite(step)


@attrs.frozen(eq=False)
class _Unit:
    """What gathers the parameters of one unit, and who reads them in backward.

    Attributes:
        nodes: The gather, the cast of what it sends, and the views of what it brings.
        readers: Nodes of backward that read these.
        first: Place of the first reader in the graph.

    """

    nodes: Sequence[Node]
    readers: Sequence[Node]
    first: int

    def gather_again(self, graph: Graph) -> None:
        """Write the nodes once more, and let backward read what they make."""
        made: dict[Value, Value] = {}
        for node in self.nodes:
            copy = graph.add(
                node.op,
                [made.get(value, value) for value in node.operands],
                [graph.fresh_name(f"{v.name}.again") for v in node.results],
                node.attributes,
                location=attrs.evolve(node.location, phase=BACKWARD),
            )
            for old, new in zip(node.results, copy.results, strict=True):
                new.type = old.type
                made[old] = new
        for reader in self.readers:
            for index, value in enumerate(reader.operands):
                if value in made:
                    graph.set_operand(reader, index, made[value])


def _units(graph: Graph) -> Iterator[_Unit]:
    """Yield what forward gathers of parameters and backward reads."""
    places = {node: place for place, node in enumerate(graph)}
    parts = set(graph.parameters)
    for node in graph:
        if node.location.phase != _FORWARD or not parts.issuperset(node.operands):
            continue
        if node.op in ("cast", "replicated"):
            parts.update(node.results)
        if node.op != "all_gather":
            continue
        nodes = [*_casts(node.operands[0]), node, *_views(graph, node.results)]
        values = [value for made in nodes for value in made.results]
        users = dict.fromkeys(use.node for v in values for use in graph.uses(v))
        readers = [user for user in users if user.location.phase == BACKWARD]
        if readers and node.location.module:
            yield _Unit(nodes, readers, min(places[reader] for reader in readers))


def _casts(part: Value) -> Iterator[Node]:
    """Yield what makes of a parameter what is gathered: nobody keeps that."""
    made: list[Node] = []
    while (node := part.producer) is not None:
        made.append(node)
        part = node.operands[0]
    if any(node.op == "cast" for node in made):
        yield from reversed(made)


def _views(graph: Graph, values: Iterable[Value]) -> Iterator[Node]:
    """Yield the views that forward makes of *values*, and of these views."""
    for node in dict.fromkeys(use.node for v in values for use in graph.uses(v)):
        is_view = BUILTIN_OPS[node.op].view is not None
        if is_view and node.location.phase == _FORWARD:
            yield node
            yield from _views(graph, node.results)
