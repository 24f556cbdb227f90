"""Linear layers of a graph that ranks share, and along which axes: Megatron's way.

A layer whose input all ranks have whole is split by columns: each computes some of the
outputs. These are passed on in parts, as far as ops allow, to a layer that is split by
rows: each multiplies its part of the input, and sums over all ranks are whole again.
A layer by columns whose outputs anybody needs whole is not split after all.

What differs from head to head without coming from a layer is split with the heads: a
bias from a table of its own that has a column for each, what is made of one number or
repeated for all heads, as a mask, parameters, and inputs, as a cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from perfc.ir import Graph, Node, Value, node_kinds
from perfc.ir.dims import Dim
from perfc.passes import graphs
from perfc.passes.parallel.tensor import split_axes

_MATRIX = 2


@attrs.frozen
class Part:
    """A value of which each rank has a part.

    Attributes:
        axis: Along which axis it is split.
        sources: Results of layers by columns, and values of `TensorLayout.given`, that
            it comes from.
        blocks: Each of so many, one behind another along the axis, is split.

    """

    axis: int
    sources: frozenset[Value]
    blocks: Dim = 1


@attrs.define(eq=False)
class TensorLayout:
    """How one graph is split.

    Attributes:
        graph: The graph.
        parts: Values that are split.
        columns: Layers that are split by columns, in order.
        rows: Layers that are split by rows, in order.
        given: Values by head that no layer makes, and their axis of heads: biases,
            parameters, and inputs, as a cache of keys.

    """

    graph: Graph
    parts: dict[Value, Part] = attrs.field(factory=dict[Value, Part], init=False)
    columns: list[Node] = attrs.field(factory=list[Node], init=False)
    rows: list[Node] = attrs.field(factory=list[Node], init=False)
    given: dict[Value, int] = attrs.field(factory=dict[Value, int], init=False)
    _whole: dict[Value, Node] = attrs.field(factory=dict[Value, Node], init=False)
    """Sources that must not be split, and which node needs them whole."""
    _blocks: dict[Value, Dim] = attrs.field(factory=dict[Value, Dim], init=False)
    """Results of layers by columns of which ranks share each of several blocks."""
    _parameters: frozenset[Value] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._parameters = frozenset(self.graph.parameters)

    @classmethod
    def of(cls, graph: Graph) -> TensorLayout:
        """Find it: split all that can be, and take back what does not work."""
        found = cls(graph)
        while (stop := found._walk()) is not None:
            if not found._split_given(stop) and not found._split_blocks(stop):
                found._take_back(stop)
        return found

    @property
    def whole(self) -> list[Node]:
        """Layers that every rank runs whole, in order."""
        shared = {*self.columns, *self.rows}
        return [n for n in self.graph if self.is_layer(n) and n not in shared]

    @property
    def whole_heads(self) -> list[Node]:
        """Attention of whose heads every rank computes all, in order."""
        return [
            node
            for node in self.graph
            if self._is_attention(node) and node.results[0] not in self.parts
        ]

    def is_layer(self, node: Node) -> bool:
        """Whether a node multiplies by a parameter: a layer's, or of all experts."""
        if node.op != "matmul":
            return node_kinds.is_linear(node)
        return parameter_of(node.operands[1]) in self._parameters

    def _is_attention(self, node: Node) -> bool:
        """Whether a node is attention, or the softmax of one that is spelled out."""
        if node.op == "attention":
            return True
        made = node.operands[0].producer if node.op == "softmax" else None
        while made is not None and (
            split_axes.keeps_elements(made) or node_kinds.is_concat(made)
        ):
            made = made.operands[0].producer
        is_matmul = made is not None and made.op in ("matmul", "einsum")
        return made is not None and is_matmul and not self.is_layer(made)

    def reason(self, node: Node) -> Node | None:
        """Return a reader that needs all of the layer that a node reads."""
        pending, seen = [node], {node}
        for reader in pending:
            for value in (*reader.results, *reader.operands):
                if self._whole.get(value, node) is not node:
                    return self._whole[value]
                made = value.producer
                if made is not None and made not in seen and not self.is_layer(made):
                    seen.add(made)
                    pending.append(made)
        return None

    def _walk(self) -> Node | None:
        """Walk the graph once; return the first node that cannot run on parts."""
        graph, values = self.graph, (*self.graph.inputs, *self.graph.parameters)
        self.parts.clear()
        self.columns.clear()
        self.rows.clear()
        for value in values:
            self._give(value)
        for node in graph:
            if not self._pass(node):
                return node
        kept = frozenset(graph.inputs)  # a rank gives back its part of a cache
        for value in graph.outputs:
            if value in self.parts and not self.parts[value].sources & kept:
                return value.producer
        return None

    def _give(self, value: Value) -> bool:
        if value in self.given:
            self._begin(value, self.given[value])
        return value in self.given

    def _begin(self, value: Value, axis: int) -> None:
        blocks = self._blocks.get(value, 1)
        self.parts[value] = Part(axis, frozenset((value,)), blocks)

    def _take_back(self, stop: Node) -> None:
        """Leave whole what the parts come from that stop the walk.

        Where axes differ heads stay split, which are before features.
        """
        around = (*stop.operands, *stop.results)
        values = [value for value in around if value in self.parts]
        axes = [self.parts[value].axis - graphs.typed(value).rank for value in values]
        wrong = [v for v, axis in zip(values, axes, strict=True) if axis > min(axes)]
        for source in self._sources(wrong or values):
            self._whole[source] = stop
            self.given.pop(source, None)

    def _split_given(self, stop: Node) -> bool:
        """Split what no layer makes, and *stop* needs a part of, if there is any."""
        made = {v: axis for v, axis in self._by_head(stop) if v not in self._whole}
        made = {v: axis for v, axis in made.items() if v not in self.given}
        self.given.update(made)
        return bool(made)

    def _split_blocks(self, stop: Node) -> bool:
        """Split each of what *stop* takes one of, as queries, keys and values."""
        part = self.parts.get(stop.operands[0]) if stop.operands else None
        if part is None or not (node_kinds.is_gather(stop) or stop.op == "split"):
            return False
        shape = graphs.typed(stop.operands[0]).shape
        axis = stop.attributes.integer("axis", 0) % len(shape)
        if axis != part.axis or part.sources & self._blocks.keys():
            return False
        self._blocks.update(dict.fromkeys(part.sources, shape[axis]))
        return True

    def _by_head(self, stop: Node) -> Iterator[tuple[Value, int]]:
        """Yield where operands of a node get their heads, which it needs in parts."""
        if not stop.results:
            return
        out, parts = stop.results[0], self.parts
        last = graphs.typed(out).rank - 1
        axes = {
            split_axes.aligned(out, parts[v].axis, v)
            for v in stop.operands
            if v in parts
        }
        makers = [source.producer for source in self._sources(stop.operands)]
        of_experts = any(made is not None and is_of_experts(made) for made in makers)
        pending = [
            (v, split_axes.aligned(v, axis, out))
            for axis in axes
            for v in stop.operands
            if v not in parts and not split_axes.is_whole(v, axis, out)
            if axis != last or of_experts or v in self._parameters
        ]
        seen = set[Value]()
        while pending:
            value, axis = pending.pop()
            node = value.producer
            if value in seen:
                continue
            seen.add(value)
            if self._begins(value, axis):
                yield value, axis
            elif node is not None:
                pending += split_axes.origins(node, axis)

    def _begins(self, value: Value, axis: int) -> bool:
        """Whether a rank can have its heads of a value without having all of them."""
        node = value.producer
        if node is None:
            return value not in self._parameters or len(self.graph.uses(value)) == 1
        if node_kinds.is_gather(node):
            return axis == graphs.typed(value).rank - 1 and self._is_own_table(node)
        if node.op == "expand":
            is_repeated = split_axes.is_whole(node.operands[0], axis, value)
            return is_repeated and split_axes.sizes_of(node) is not None
        if node.op == "range":
            return all(split_axes.elements_of(operand) for operand in node.operands)
        return node.op == "empty" or (
            node.op == "fill" and split_axes.sizes_of(node) is not None
        )

    def _is_own_table(self, node: Node) -> bool:
        table = node.operands[0]
        by_row = not node.attributes.integer("axis", 0)
        return by_row and graphs.typed(table).rank == _MATRIX and self._is_own(table)

    def _sources(self, values: Iterable[Value]) -> frozenset[Value]:
        parts = (self.parts[value] for value in values if value in self.parts)
        return frozenset[Value]().union(*(part.sources for part in parts))

    def _pass(self, node: Node) -> bool:
        """Say how the results of a node are split; False if it cannot run on parts."""
        if self.is_layer(node):
            return self._layer(node)
        if node.results and self._give(node.results[0]):
            return True
        parts = [self.parts.get(value) for value in node.operands]
        axes = [None if part is None else part.axis for part in parts]
        blocks = {part.blocks for part in parts if part is not None}
        if not blocks:
            return True
        rule = split_axes.rule_of(node)
        if rule is None or node.regions or len(blocks) > 1:
            return False
        (inside,) = blocks
        found = rule(node, axes)
        if split_axes.is_reshaped(node) and axes[0] is not None:
            view = split_axes.viewed_part(node, axes[0], inside)
            found, inside = (None, inside) if view is None else ([view[0]], view[1])
        if found is None:
            return False
        sources = self._sources(node.operands)
        for value, axis in zip(node.results, found, strict=True):
            if axis is not None:
                self.parts[value] = Part(axis, sources, inside)
        return True

    def _layer(self, node: Node) -> bool:
        """Split by columns, by rows, or not at all."""
        x, weight = node.operands[:2]
        own = all(self._is_own(value) for value in node.operands[1:])
        out, part = node.results[0], self.parts.get(x)
        if any(value in self.parts for value in node.operands[1:]):
            return False
        if part is None:
            if own and out not in self._whole:
                self.columns.append(node)
                self._begin(out, graphs.typed(out).rank - 1)
            return True
        if part.axis == graphs.typed(x).rank - 1:
            if self._is_own(weight):
                self.rows.append(node)
            return self._is_own(weight)
        self.parts[out] = part
        return graphs.typed(weight).rank == _MATRIX

    def _is_own(self, value: Value) -> bool:
        """Whether a parameter is this layer's alone: as it is, cast, or turned."""
        while len(self.graph.uses(value)) == 1:
            node = value.producer
            if node is None or not is_weight_view(node):
                return value in self._parameters
            value = node.operands[0]
        return False


def parameter_of(value: Value) -> Value:
    """Return the value that a layer's weight or bias is a view of."""
    while (node := value.producer) is not None and is_weight_view(node):
        value = node.operands[0]
    return value


def is_of_experts(node: Node) -> bool:
    """Whether a layer multiplies by a matrix for each expert."""
    return node.op == "matmul" and graphs.typed(node.operands[1]).rank > _MATRIX


def is_weight_view(node: Node) -> bool:
    """Whether a node may stand between a parameter and its layer.

    Autocast casts it; `t` of recorded calls transposes it.
    """
    return node_kinds.is_cast(node) or node_kinds.permutation(node) is not None
