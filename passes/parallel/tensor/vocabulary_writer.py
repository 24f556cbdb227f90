"""Writes a vocabulary that ranks share into a graph."""

from __future__ import annotations

import attrs

from perfc.ir import Graph, Node, Value
from perfc.ir.ops import BUILTIN_OPS
from perfc.passes import graphs
from perfc.passes.autodiff import ALIKE, mask_outside
from perfc.passes.parallel.tensor import vocabulary_layout
from perfc.passes.parallel.tensor.tensor_layout import is_weight_view
from perfc.passes.parallel.tensor.tensor_writer import communicator, shrink
from perfc.passes.shapes import Inference


@attrs.define(eq=False)
class VocabularyWriter:
    """Writes a layout into its graph.

    Attributes:
        graph: The graph.
        layout: What has a vocabulary.
        ranks: How many ranks share it.

    """

    graph: Graph
    layout: vocabulary_layout.VocabularyLayout
    ranks: int
    _tape: graphs.Tape = attrs.field(init=False)
    _shrunk: set[Value] = attrs.field(factory=set[Value], init=False)
    _waiting: list[Node] = attrs.field(factory=list[Node], init=False)
    _outside: Value | None = attrs.field(default=None, init=False)
    """Mask of the waiting lookup's tokens that are not this rank's."""

    def __attrs_post_init__(self) -> None:
        """Write where the graph is rewritten."""
        self._tape = graphs.Tape(self.graph, Inference(self.graph, BUILTIN_OPS))
        self._tape.constants = "vocabulary"

    def write(self) -> None:
        """Make the table, the head and its scores parts; put what they need around."""
        head = self.layout.head
        weight, *bias = head.operands[1:]
        self._shrink(self.layout.table, 0)
        self._shrink(weight, vocabulary_layout.axis_of_outputs(head))
        for value in bias:
            self._shrink(value, 0)
        out = head.results[0]
        shrink(out, graphs.typed(out).rank - 1, head, self.ranks)
        self.graph.rewrite(self._step)
        self._finish()

    def _shrink(self, value: Value, axis: int) -> None:
        """Keep a part of a parameter, and of all that it is cast to or turned into."""
        while (made := value.producer) is not None:
            value, axis = made.operands[0], vocabulary_layout.turned(made)[axis]
        self._shrink_views(value, axis)

    def _shrink_views(self, value: Value, axis: int) -> None:
        if value in self._shrunk:
            return
        self._shrunk.add(value)
        shrink(value, axis, self.layout.head, self.ranks)
        for use in self.graph.uses(value):
            if is_weight_view(use.node):
                self._shrink_views(
                    use.node.results[0], vocabulary_layout.turned(use.node).index(axis)
                )

    def _step(self, node: Node) -> None:
        """Write what belongs before *node*."""
        self._finish()
        if node in self.layout.lookups:
            self._waiting.append(node)
            self._at(node)
            table, tokens = node.operands
            outside, rows = mask_outside(
                self._tape, tokens, graphs.typed(table).shape[0]
            )
            self.graph.set_operand(node, 1, rows)
            self._outside = outside
        elif node is self.layout.head:
            self._waiting.append(node)
            self._at(node)
            x = self._tape.op(
                "replicated", node.operands[0], **communicator(self.ranks)
            )
            self.graph.set_operand(node, 0, x)

    def _at(self, node: Node) -> None:
        self._tape.location, self._tape.stem = node.location, node.name

    def _finish(self) -> None:
        """Write what belongs after the node that waits."""
        if not self._waiting:
            return
        node = self._waiting.pop()
        value = node.results[0]
        readers = self.graph.uses(value)
        made = self._scores(value) if node is self.layout.head else self._sum(value)
        for use in readers:
            self.graph.set_operand(use.node, use.index, made)
        outputs = self.graph.outputs
        self.graph.outputs = [made if v is value else v for v in outputs]

    def _scores(self, value: Value) -> Value:
        """Gather the scores: a loss that takes parts will read those instead."""
        attributes = {**communicator(self.ranks), "axis": graphs.typed(value).rank - 1}
        return self._tape.op("all_gather", value, **attributes, **{ALIKE: True})

    def _sum(self, value: Value) -> Value:
        """Leave out what is not this rank's, and all-reduce what all have."""
        assert self._outside is not None  # written before it
        tape, rank = self._tape, graphs.typed(self._outside).rank
        mask = tape.op("unsqueeze", self._outside, axes=(rank,))
        none = tape.number(value, 0.0)
        own = tape.op("masked_fill", value, mask, none, in_place=True)
        return tape.op("all_reduce", own, **communicator(self.ranks))
