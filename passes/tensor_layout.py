"""Which linear layers of a graph ranks share, and along which axes: Megatron's way.

A layer whose input all ranks have whole is split by columns: each computes some of the
outputs. These are passed on in parts, as far as ops allow, to a layer that is split by
rows: each multiplies its part of the input, and sums over all ranks are whole again.
A layer by columns whose outputs anybody needs whole is not split after all.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from perfc.ir import Graph, Node, Value
from perfc.passes.split_axes import RULES
from perfc.passes.tape import typed

LINEAR = "linear"
WEIGHT_VIEWS = ("cast", "transpose")
"""What may stand between a parameter and its layer: autocast, `t` of recorded calls."""


@attrs.frozen
class Part:
    """A value of which each rank has a part.

    Attributes:
        axis: Along which axis it is split.
        sources: The layers by columns that it comes from.

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

    """

    graph: Graph
    parts: dict[Value, Part] = attrs.field(factory=dict[Value, Part], init=False)
    columns: list[Node] = attrs.field(factory=list[Node], init=False)
    rows: list[Node] = attrs.field(factory=list[Node], init=False)
    _whole: set[Node] = attrs.field(factory=set[Node], init=False)
    _parameters: frozenset[Value] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._parameters = frozenset(self.graph.parameters)

    @classmethod
    def of(cls, graph: Graph) -> TensorLayout:
        """Find it: split all that can be, and take back what does not work."""
        found = cls(graph)
        while wrong := found._try():
            found._whole |= wrong
        return found

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
        if node.op == LINEAR:
            return self._linear(node)
        axes = [self.parts[v].axis if v in self.parts else None for v in node.operands]
        if set(axes) <= {None}:
            return True
        rule = RULES.get(node.op)
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
            if node is None or node.op not in WEIGHT_VIEWS:
                return value in self._parameters
            value = node.operands[0]
        return False
