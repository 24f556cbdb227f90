"""What microbatches of a training step share, and what of them is added up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from perfc.ir import Graph, Node, Value, node_kinds
from perfc.ir.dims import Dim
from perfc.ir.location import ACCUMULATE_GRAD
from perfc.passes import graphs

_INDICES, _VALUES = 1, 2
"""Operands of the step that takes a sparse gradient."""

_LOSS = "loss"


@attrs.frozen(eq=False)
class Gradient:
    """A gradient that microbatches add up.

    Attributes:
        value: What the optimizer reads of it, or the step returns.
        part: What a microbatch adds to the sum.
        taken: The node by which the parameter takes it over; None if there is none.
        narrow: What `part` is cast from, if it is: later ones are added as they are.
        late: Nodes that only the last microbatch runs, of the sum: those by which
            ranks add gradients up, and what follows them.

    """

    value: Value
    part: Value
    taken: Node | None = None
    narrow: Value | None = None
    late: frozenset[Node] = frozenset()


@attrs.frozen(eq=False)
class Sums:
    """A training step of one microbatch, and what becomes of it in a step of several.

    Attributes:
        graph: The step.
        known: Elements of values that are known before running.
        once: Nodes that run once, in the first microbatch.
        gradients: Dense gradients.
        rows: What sparse gradients are made of: rows, and the indices of each.
        loss: The loss that is divided, and its gradient, where backward begins.

    """

    graph: Graph
    known: Mapping[Value, tuple[Dim, ...]]
    once: frozenset[Node]
    gradients: Sequence[Gradient]
    rows: Sequence[Value]
    loss: tuple[Value, Value] | None

    @classmethod
    def of(
        cls,
        graph: Graph,
        known: Mapping[Value, tuple[Dim, ...]],
        gathered: Iterable[Node],
        *,
        late: bool,
        divide: bool,
    ) -> Sums:
        """Look at a training step.

        Args:
            graph: The step of one microbatch.
            known: Elements of values that are known before running.
            gathered: What gathers parameters that stay for all microbatches.
            late: Whether ranks add up the sum of all microbatches alone.
            divide: Whether the loss is divided.

        """
        alike = [node for node in graph if _is_alike(graph, node, known)]
        rows = [
            node.operands[place]
            for node in graph
            if node_kinds.updates_rows(node)
            for place in (_INDICES, _VALUES)
        ]
        return cls(
            graph,
            known,
            frozenset((*alike, *gathered)),
            list(_gradients(graph, late=late)),
            list(dict.fromkeys(rows)),
            _loss(graph, frozenset(alike)) if divide else None,
        )


def _is_alike(graph: Graph, node: Node, known: Mapping[Value, tuple[Dim, ...]]) -> bool:
    """Whether a node is the same for all: a constant, known integers, a zeroed sum."""
    if node.location.phase == graphs.OPTIMIZER:
        return False
    if node_kinds.is_constant(node):
        return True
    if node.results and all(value in known for value in node.results):
        return True
    zeroed = bool(node.attributes.get("in_place")) and bool(node.operands)
    return zeroed and set(graph.states).issuperset(node.operands)


def _gradients(graph: Graph, *, late: bool) -> Iterator[Gradient]:
    """Yield the gradients that the optimizer reads, or the step returns."""
    updates = [node for node in graph if node.location.phase == graphs.OPTIMIZER]
    sparse = {
        v for node in updates if node_kinds.updates_rows(node) for v in node.operands
    }
    read = {v for node in updates for v in node.operands} or set(graph.outputs)
    taken = {
        node.results[0].name: node
        for node in graph
        if node.location.origin == ACCUMULATE_GRAD
    }
    for node in graph:
        if node.location.phase != graphs.BACKWARD:
            continue
        for value in node.results:
            if value in read and value not in sparse:
                yield _gradient(value, _taken_by(value, taken), late=late)


def _taken_by(value: Value, taken: Mapping[str, Node]) -> Node | None:
    """Return the node that hands a parameter the gradient that a value is.

    What `data-parallel` returns of a bucket is named for the gradient.
    """
    name = value.name
    while name and name not in taken:
        name = name.rpartition(".")[0]
    return taken.get(name)


def _gradient(value: Value, taken: Node | None, *, late: bool) -> Gradient:
    part = value if taken is None else taken.operands[-1]
    chain = _chain(part) if late else []
    if not chain:
        return Gradient(value, part, taken)
    first = chain[-1].operands[0]
    after = [*chain, taken] if taken is not None else chain
    return Gradient(value, first, taken, _narrow(first), frozenset(after))


def _chain(value: Value) -> list[Node]:
    """Return the nodes that make a gradient of what ranks add up, the first last."""
    passed: list[Node] = []
    chain: list[Node] = []
    node = value.producer
    while node is not None and node.location.phase == graphs.BACKWARD:
        if node_kinds.is_collective(node):
            chain = [*passed, node]
        elif not (node_kinds.is_cast(node) or node_kinds.is_view(node)):
            break
        passed.append(node)
        node = node.operands[0].producer
    return chain


def _narrow(value: Value) -> Value | None:
    node = value.producer
    return node.operands[0] if node is not None and node_kinds.is_cast(node) else None


def _loss(graph: Graph, alike: frozenset[Node]) -> tuple[Value, Value] | None:
    """Return the loss and its gradient; None if they are not told apart from others.

    Backward begins with a number, for which it reads nothing that was computed.
    """
    found = [
        value
        for value in graph.outputs
        if value.producer is not None and value.producer.location.phase == _LOSS
    ]
    backward = (node for node in graph if node.location.phase == graphs.BACKWARD)
    seed = next((node for node in backward if node not in alike), None)
    if len(found) != 1 or seed is None or seed.results[0].type != found[0].type:
        return None
    computed = [v for v in seed.operands if v.producer not in alike]
    return None if computed else (found[0], seed.results[0])
