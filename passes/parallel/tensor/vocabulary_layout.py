"""Table and layer of a graph that have a vocabulary that ranks can share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from perfc.ir import Graph, Node, Value, node_kinds
from perfc.ir.dims import Dim
from perfc.ir.opdef import Trait
from perfc.passes import graphs
from perfc.passes.parallel.tensor import tensor_layout
from perfc.passes.parallel.tensor.split_axes import keeps_elements

_MATRIX = 2
_WEIGHT = 1


@attrs.frozen(eq=False)
class VocabularyLayout:
    """The output layer of a model, and the lookups of its tokens.

    Attributes:
        head: The layer that makes a score for each token, and nothing reads.
        lookups: Lookups of tokens, in one table.

    """

    head: Node
    lookups: Sequence[Node]

    @property
    def size(self) -> Dim:
        """How many tokens there are."""
        return graphs.typed(self.head.results[0]).shape[-1]

    @property
    def table(self) -> Value:
        """The table of the lookups, which may be the head's weight, too."""
        return self.lookups[0].operands[0]

    @classmethod
    def of(cls, layout: tensor_layout.TensorLayout) -> VocabularyLayout | None:
        """Find it; None if there is not one head and one table of as many tokens."""
        graph = layout.graph
        ends = {_head(graph, output) for output in graph.outputs}
        heads = {n for n in ends if n is not None and layout.is_layer(n)}
        if len(heads) != 1:
            return None
        (head,) = heads
        found = cls(head, ())
        tables = [v for v in graph.parameters if found._is_table(graph, v)]
        if len(tables) != 1 or not found._owns(graph):
            return None
        readers = (node for node, _ in leaves(graph, tables[0], 0))
        return cls(head, [node for node in readers if node is not head])

    def _owns(self, graph: Graph) -> bool:
        weight, *bias = map(tensor_layout.parameter_of, self.head.operands[1:])
        readers = {n for n, _ in leaves(graph, weight, 0)} - {self.head}
        alone = all(len(graph.uses(value)) == 1 for value in bias)
        return alone and all(map(node_kinds.is_gather, readers))

    def _is_table(self, graph: Graph, table: Value) -> bool:
        """Whether tokens that come from outside are looked up in a parameter."""
        type_ = graphs.typed(table)
        if type_.rank != _MATRIX or type_.shape[0] != self.size:
            return False
        found = list(leaves(graph, table, 0))
        lookups = [n for n, axis in found if _looks_up(n, table) and axis == 0]
        tied = [(n, axis) for n, axis in found if n is self.head]
        by_row = all(axis == axis_of_outputs(n) for n, axis in tied)
        outside = any(_is_given(graph, node.operands[1]) for node in lookups)
        return by_row and outside and len(lookups) + len(tied) == len(found)


def leaves(graph: Graph, value: Value, axis: int) -> Iterator[tuple[Node, int]]:
    """Yield who reads a parameter, be it turned or cast, and where *axis* is then."""
    for use in graph.uses(value):
        node = use.node
        if not tensor_layout.is_weight_view(node):
            yield node, axis
            continue
        yield from leaves(graph, node.results[0], turned(node).index(axis))


def turned(node: Node) -> tuple[int, ...]:
    """Return which axis of a matrix each axis of a view of it is."""
    return node_kinds.permutation(node) or tuple(range(_MATRIX))


def axis_of_outputs(head: Node) -> int:
    """Return which axis of a layer's weight is that of its outputs."""
    return 1 if head.op == "matmul" or head.attributes.flag("weight_is_kn") else 0


def _head(graph: Graph, output: Value) -> Node | None:
    """Return the node that makes the scores of an output: viewed or capped, maybe."""
    node, uses = output.producer, [*graph.uses(output)]
    while node is not None and not uses and keeps_elements(node):
        uses = [use for use in graph.uses(node.operands[0]) if use.node is not node]
        node = node.operands[0].producer
    return None if uses or graphs.typed(output).rank == 1 else node


def _looks_up(node: Node, table: Value) -> bool:
    is_lookup = node_kinds.is_gather(node) and node.attributes.integer("axis", 0) == 0
    return is_lookup and tensor_layout.parameter_of(node.operands[0]) is table


def _is_given(graph: Graph, value: Value) -> bool:
    while (node := value.producer) is not None and (
        node_kinds.is_cast(node) or node_kinds.has_trait(node, Trait.KEEPS_ORDER)
    ):
        value = node.operands[0]
    return value in graph.inputs
