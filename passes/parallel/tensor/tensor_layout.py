"""Linear layers of a graph that ranks share, and along which axes: Megatron's way.

A layer whose input all ranks have whole is split by columns: each computes some of the
outputs. These are passed on in parts, as far as ops allow, to a layer that is split by
rows: each multiplies its part of the input, and sums over all ranks are whole again.
A layer by columns whose outputs anybody needs whole is not split after all.

A bias of attention that differs from head to head, as of relative positions, is split
with the heads, if it comes from a table of its own that has a column for each, or is
made of one number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from perfc.ir import Graph, Node, Value
from perfc.ir.node_kinds import (
    is_cast,
    is_gather,
    is_linear,
    permutation,
)
from perfc.passes.graphs import (
    typed,
)
from perfc.passes.parallel.tensor.split_axes import (
    BY_HEADS,
    HEADS,
    QUERIES_KEYS_VALUES,
    is_whole,
    rule_of,
    sizes_of,
)

_BIAS_OPS = frozenset(
    ("add", "cast", "expand", "mul", "reshape", "slice", "transpose", "unsqueeze")
)
"""What may stand between a table of biases and attention: views, a mask, a scale."""
_MATRIX = 2


@attrs.frozen
class Part:
    """A value of which each rank has a part.

    Attributes:
        axis: Along which axis it is split.
        sources: The layers by columns, or biases by head, that it comes from.

    """

    axis: int
    sources: frozenset[Node]


@attrs.define(eq=False)
class TensorLayout:
    """How one graph is split.

    Attributes:
        graph: The graph.
        parts: Values that are split.
        columns: Layers that are split by columns, in order.
        rows: Layers that are split by rows, in order.
        biases: What makes biases of attention by head, and its axis of heads.

    """

    graph: Graph
    parts: dict[Value, Part] = attrs.field(factory=dict[Value, Part], init=False)
    columns: list[Node] = attrs.field(factory=list[Node], init=False)
    rows: list[Node] = attrs.field(factory=list[Node], init=False)
    biases: dict[Node, int] = attrs.field(factory=dict[Node, int], init=False)
    _whole: set[Node] = attrs.field(factory=set[Node], init=False)
    _parameters: frozenset[Value] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._parameters = frozenset(self.graph.parameters)

    @classmethod
    def of(cls, graph: Graph) -> TensorLayout:
        """Find it: split all that can be, and take back what does not work."""
        found = cls(graph)
        found.biases.update(found._biases_by_head())
        while wrong := found._try():
            found._whole |= wrong
            for node in wrong & found.biases.keys():
                del found.biases[node]
        return found

    @property
    def whole(self) -> list[Node]:
        """Linear layers that every rank runs whole, in order."""
        shared = {*self.columns, *self.rows}
        return [n for n in self.graph if is_linear(n) and n not in shared]

    @property
    def whole_attention(self) -> list[Node]:
        """Attention of whose heads every rank computes all, in order."""
        found = [n for n in self.graph if n.op == "attention"]
        return [n for n in found if n.results[0] not in self.parts]

    def _biases_by_head(self) -> Iterator[tuple[Node, int]]:
        """Yield nodes that make biases that differ by head, and the axis of heads."""
        pending = [
            mask
            for node in self.graph
            if node.op == "attention" and typed(node.results[0]).rank == BY_HEADS
            for mask in node.operands[QUERIES_KEYS_VALUES:]
            if not is_whole(mask, HEADS, node.results[0])
        ]
        seen: set[Value] = set()
        while pending:
            value = pending.pop()
            node = value.producer
            if value in seen or node is None:
                continue
            seen.add(value)
            if node.op in _BIAS_OPS:
                pending += node.operands
            elif is_gather(node) and self._is_own_table(node):
                yield node, typed(value).rank - 1
            elif node.op == "fill" and _has_heads(node):
                yield node, HEADS

    def _is_own_table(self, node: Node) -> bool:
        table = node.operands[0]
        by_row = not node.attributes.integer("axis", 0)
        return by_row and typed(table).rank == _MATRIX and self._is_own(table)

    def _try(self) -> frozenset[Node]:
        """Walk the graph once; return the layers that must not be split."""
        self.parts.clear()
        self.columns.clear()
        self.rows.clear()
        for node in self.graph:
            if not self._pass(node):
                return self._sources(node.operands)
        return self._sources(self.graph.outputs)

    def _sources(self, values: Iterable[Value]) -> frozenset[Node]:
        parts = (self.parts[value] for value in values if value in self.parts)
        return frozenset[Node]().union(*(part.sources for part in parts))

    def _pass(self, node: Node) -> bool:
        """Say how the results of a node are split; False if it cannot run on parts."""
        if is_linear(node):
            return self._linear(node)
        if node in self.biases:
            made = Part(self.biases[node], frozenset((node,)))
            self.parts[node.results[0]] = made
            return True
        axes = [self.parts[v].axis if v in self.parts else None for v in node.operands]
        if set(axes) <= {None}:
            return True
        rule = rule_of(node)
        found = None if rule is None or node.regions else rule(node, axes)
        if found is None:
            return False
        sources = self._sources(node.operands)
        for value, axis in zip(node.results, found, strict=True):
            if axis is not None:
                self.parts[value] = Part(axis, sources)
        return True

    def _linear(self, node: Node) -> bool:
        """Split by columns, by rows, or not at all."""
        x, weight = node.operands[:2]
        own = all(self._is_own(value) for value in node.operands[1:])
        last, out = typed(x).rank - 1, node.results[0]
        part = self.parts.get(x)
        if any(value in self.parts for value in node.operands[1:]):
            return False
        if part is None:
            if own and node not in self._whole:
                self.columns.append(node)
                self.parts[out] = Part(last, frozenset((node,)))
            return True
        if part.axis != last:
            self.parts[out] = part
            return True
        if self._is_own(weight):
            self.rows.append(node)
        return self._is_own(weight)

    def _is_own(self, value: Value) -> bool:
        """Whether a parameter is this layer's alone: as it is, cast, or turned."""
        while len(self.graph.uses(value)) == 1:
            node = value.producer
            if node is None or not is_weight_view(node):
                return value in self._parameters
            value = node.operands[0]
        return False


def _has_heads(node: Node) -> bool:
    """Whether a node that takes sizes makes a tensor of several heads."""
    shape = typed(node.results[0]).shape
    return len(shape) == BY_HEADS and shape[HEADS] != 1 and sizes_of(node) is not None


def is_weight_view(node: Node) -> bool:
    """Whether a node may stand between a parameter and its layer.

    Autocast casts it; `t` of recorded calls transposes it.
    """
    return is_cast(node) or permutation(node) is not None
