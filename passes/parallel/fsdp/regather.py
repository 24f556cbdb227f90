"""The pass `regather`."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import ClassVar

import attrs

from perfc.ir import AnyKey, Graph, Node, Program, UsageError, Value, node_kinds
from perfc.ir.location import Location
from perfc.passes.base import PassContext, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.graphs import (
    BACKWARD,
    FORWARD,
    gathers,
)


@attrs.frozen
class Regather(Transform):
    """Forget gathered parameters after forward; gather them again for backward.

    As PyTorch's FSDP does with `reshard_after_forward`. What the root gathers stays:
    backward begins with it. Run it after `training`, and after
    `checkpoint-activations`: a unit that is computed again right before its backward
    pass is gathered once for both; where other units come in between it is forgotten,
    and gathered twice. `fsdp` has it run.

    Attributes:
        prefetch: `pre`: a unit is gathered again before the backward pass of the
            unit that comes before it (`BackwardPrefetch.BACKWARD_PRE`); `none`: in
            front of its own.

    """

    name: ClassVar[str] = "regather"
    runs_after: ClassVar[frozenset[str]] = frozenset(
        {"training", "checkpoint-activations"}
    )
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
        graphs = [rank.ops for rank in program.classes if rank.ops is not None]
        found = 0
        for graph in graphs:
            units = sorted(_units(graph), key=lambda unit: unit.first)
            self._write(graph, units)
            found += len(units)
        if found:
            return
        if any(map(_keeps_any, graphs)):
            ctx.note(
                "nothing-gathered",
                "backward reads what the root has gathered, which stays till then: "
                "nothing is gathered again",
            )
        else:
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
    """Nodes that gather the parameters of one unit, and their readers in backward.

    Attributes:
        nodes: The gather, the cast of what it sends, and the views of what it brings.
        readers: Nodes of backward that read these, until they are forgotten.
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
    """Yield units that forward gathers and backward reads, each time anew."""
    places = {node: place for place, node in enumerate(graph)}
    units: list[Sequence[Node]] = []
    read: list[tuple[int, int]] = []
    forward: set[tuple[str, Location]] = set()
    for nodes in gathers(graph):
        # The root's parameters are not freed after forward: backward begins with them.
        if not next(filter(node_kinds.is_all_gather, nodes)).location.module:
            continue
        for reader in _readers(graph, nodes):
            if reader.location.phase == BACKWARD:
                read.append((places[reader], len(units)))
            forward.add((reader.op, reader.location))
        units.append(nodes)
    order = list(graph)
    runs: dict[int, list[list[Node]]] = {}
    # A unit stays gathered until its backward pass ends, even if readers of another
    # unit lie in between. Only after a forward pass that runs again does FSDP free the
    # parameters, so that backward has to gather them once more if another unit came
    # first.
    last = -1
    for place, number in sorted(read):
        found = runs.setdefault(number, [])
        if not found or (last != number and _is_again(found[-1][-1], forward)):
            found.append([])
        found[-1].append(order[place])
        last = number
    for number, found in runs.items():
        for readers in found:
            yield _Unit(units[number], readers, places[readers[0]])


def _keeps_any(graph: Graph) -> bool:
    return any(
        reader.location.phase == BACKWARD
        for nodes in gathers(graph)
        for reader in _readers(graph, nodes)
    )


def _readers(graph: Graph, nodes: Sequence[Node]) -> Iterable[Node]:
    values = [value for made in nodes for value in made.results]
    return dict.fromkeys(node for v in values for node in graph.readers(v))


def _is_again(reader: Node, forward: Container[tuple[str, Location]]) -> bool:
    return (reader.op, attrs.evolve(reader.location, phase=FORWARD)) in forward
