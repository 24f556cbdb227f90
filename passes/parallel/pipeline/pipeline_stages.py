"""Stage of a pipeline that every node belongs to, and what stages send."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from perfc.ir import Graph, Node, Value, node_kinds
from perfc.ir.dims import Dim
from perfc.ir.location import ACCUMULATE_GRAD
from perfc.passes import graphs
from perfc.passes.parallel.pipeline.stage_cuts import LateSteps, Layers, is_forward


@attrs.frozen(eq=False)
class Stages:
    """A graph, cut into stages.

    Values flow up in forward, and down in backward. Where places have several stages
    each, stages are assigned one by one, in turn.

    Attributes:
        graph: The graph of one microbatch.
        count: How many stages.
        known: Elements of integer tensors that are known without running.
        of: The stage of each node of forward and backward; constants are on all.

    """

    graph: Graph
    count: int
    known: Mapping[Value, tuple[Dim, ...]]
    of: Mapping[Node, int]

    @classmethod
    def cut(
        cls,
        graph: Graph,
        count: int,
        known: Mapping[Value, tuple[Dim, ...]],
        numbers: Mapping[str, int],
        steps: LateSteps,
    ) -> Stages:
        """Cut forward by its work; backward goes where its forward is.

        Args:
            graph: The graph.
            count: How many stages.
            known: Elements of integer tensors.
            numbers: Numbers of symbols, for the work.
            steps: Makes what is done where stages are chunks of several places.

        """
        everywhere = frozenset(n for n in graph if _is_everywhere(n, known))
        layers = Layers.of(graph, everywhere, numbers)
        firsts = layers.cut(count, steps)
        of: dict[Node, int] = {}
        for number, layer in enumerate(layers.nodes):
            stage = sum(first <= number for first in firsts) - 1
            of.update(dict.fromkeys(layer, stage))
        finder = _Forward.of(of)
        for node in graph:
            if node.location.phase == graphs.BACKWARD and node not in everywhere:
                of[node] = _backward_stage(node, of, finder.stage(node), count)
        return cls(graph, count, known, of)

    def nodes(self, stage: int, *, backward: bool) -> list[Node]:
        """Return the nodes of forward or backward of a stage."""
        return [
            node
            for node in self.graph
            if self.of.get(node) == stage and is_forward(node) != backward
        ]

    def stage(self, value: Value) -> int | None:
        """Return where a value is made; None for what is on all stages."""
        return None if value.producer is None else self.of.get(value.producer)

    def transfers(self, left_out: frozenset[Node], places: int) -> Iterator[Transfer]:
        """Yield the transfers between stages, in the order in which values are made.

        Nodes that are left out make and read nothing. A place gets a value once, and
        sends itself none.
        """
        for node in self.graph:
            source = self.of.get(node)
            if source is None or node in left_out:
                continue
            for value in node.results:
                users = self.graph.readers(value)
                readers = [self.of.get(n) for n in users if n not in left_out]
                stages = {s for s in readers if s is not None}
                for stage in sorted(_first_of_places(source, stages, places)):
                    yield Transfer(value, source, stage)


def _first_of_places(source: int, readers: set[int], places: int) -> Iterator[int]:
    """Yield which stage of each other place is the first to read what *source* made.

    Stages above come in forward, then those below in backward, the highest first.
    """
    order = [s for s in sorted(readers) if s > source]
    order += [s for s in sorted(readers, reverse=True) if s < source]
    seen = {source % places}
    for stage in order:
        if stage % places not in seen:
            seen.add(stage % places)
            yield stage


@attrs.frozen(eq=False)
class Transfer:
    """A value that one stage sends to another."""

    value: Value
    source: int
    target: int

    @property
    def backward(self) -> bool:
        """Whether it goes down, in backward."""
        return self.target < self.source


def _is_everywhere(node: Node, known: Mapping[Value, Sequence[Dim]]) -> bool:
    """Whether no stage has to run a node: a constant, or integers that are known."""
    if node.location.phase == graphs.OPTIMIZER and not node_kinds.is_constant(node):
        return False
    return node_kinds.is_constant(node) or (
        bool(node.results) and all(value in known for value in node.results)
    )


@attrs.frozen(eq=False)
class _Forward:
    """Stages of forward nodes by what backward calls them."""

    by_result: Mapping[str, int]
    by_module: Mapping[str, int]

    @classmethod
    def of(cls, forward: Mapping[Node, int]) -> _Forward:
        results = {v.name: stage for n, stage in forward.items() for v in n.results}
        modules = {n.location.module: stage for n, stage in forward.items()}
        return cls(results, modules)

    def stage(self, node: Node) -> int | None:
        """Return the stage of the forward node that a node of backward belongs to.

        Backward nodes are named for its first result, or are in its module.
        """
        name = node.name
        while name:
            name = name.rpartition(".")[0]
            if name in self.by_result:
                return self.by_result[name]
        return (
            self.by_module.get(node.location.module) if node.location.module else None
        )


def _backward_stage(
    node: Node, of: Mapping[Node, int], wanted: int | None, count: int
) -> int:
    """Return the stage of a node of backward: never above what it reads of backward."""
    producers = [v.producer for v in node.operands if v.producer in of]
    read = [n for n in producers if n is not None]
    if node.location.origin == ACCUMULATE_GRAD or wanted is None:
        wanted = max((of[n] for n in read), default=count - 1)
    return min([wanted, *(of[n] for n in read if n.location.phase == graphs.BACKWARD)])
