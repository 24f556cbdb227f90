"""Writes the layers that ranks share, as `tensor_layout` finds them, into a graph."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfc.ir import AttrValue, Graph, Node, Value
from perfc.ir.core import Replacement
from perfc.ir.node_kinds import (
    is_gather,
    permutation,
)
from perfc.ir.support import UnsupportedModelError
from perfc.passes.graphs import (
    typed,
)
from perfc.passes.parallel.tensor.split_axes import TAKE_SIZES, sizes_of, takes_sizes
from perfc.passes.parallel.tensor.tensor_layout import TensorLayout

GROUP = STREAM = "tp"
"""Name of the communicator of ranks that share layers, and of its stream."""


def communicator(ranks: int) -> dict[str, AttrValue]:
    """Return the attributes of collectives of ranks that share layers."""
    return {"group": GROUP, "ranks": ranks, "stream": STREAM}


def shrink(value: Value, axis: int, node: Node, ranks: int) -> None:
    """Leave a rank's part of an axis of a value, which *node* reads or makes.

    Raises:
        UnsupportedModelError: it does not divide.

    """
    type_ = typed(value)
    dim = type_.shape[axis]
    if not isinstance(dim, int) or dim % ranks:
        where = node.location.module or str(node)
        msg = (
            f"{where}: {dim} of {node.name} do not divide by {ranks} ranks of "
            "tensor-parallel"
        )
        raise UnsupportedModelError(msg)
    shape = (*type_.shape[:axis], dim // ranks, *type_.shape[axis + 1 :])
    value.type = attrs.evolve(type_, shape=shape)


@attrs.define(eq=False)
class TensorWriter:
    """Writes a layout into its graph."""

    layout: TensorLayout
    ranks: int
    _biases: dict[Node, Sequence[Value]] = attrs.field(
        factory=dict[Node, "Sequence[Value]"], init=False
    )
    """Layers by rows, and the bias of each that has one."""

    @property
    def _graph(self) -> Graph:
        return self.layout.graph

    def write(self) -> None:
        """Make values and weights parts, and put the collectives in."""
        for node in self._graph:
            self._resize(node)
        for node in self.layout.columns:
            self._split_weight(node, into=0)
            for bias in node.operands[2:]:
                self._shrink_parameter(bias, typed(bias).rank - 1, node)
        for node in self.layout.biases:
            if is_gather(node):
                self._shrink_parameter(node.operands[0], 1, node)
        self._take_biases()
        for node in self._biases:
            self._split_weight(node, into=1)
        self._share_inputs()
        self._add_up()

    def _take_biases(self) -> None:
        """Leave layers by rows their matmuls alone: a sum has the bias once."""
        graph, rows = self._graph, self.layout.rows
        biases = {node.results[0].name: node.operands[2:] for node in rows}
        graph.replace({node: _matmul(node) for node in rows if node.operands[2:]})
        for name, bias in biases.items():
            node = graph.value(name).producer
            assert node is not None  # a layer's result
            self._biases[node] = bias

    def _shrink_parameter(self, value: Value, axis: int, node: Node) -> None:
        """Keep a part of a parameter, and of what it is cast to or turned into."""
        shrink(value, axis, node, self.ranks)
        made = value.producer
        if made is None:
            return
        perm = permutation(made)
        axis = axis if perm is None else perm[axis]
        self._shrink_parameter(made.operands[0], axis, node)

    def _split_weight(self, node: Node, into: int) -> None:
        """Keep a part of the outputs (0) or of the inputs (1) of a layer."""
        weight = node.operands[1]
        turned = node.attributes.flag("weight_is_kn")
        self._shrink_parameter(weight, 1 - into if turned else into, node)

    def _resize(self, node: Node) -> None:
        """Shrink the results of a node, and what it says of their sizes."""
        parts = self.layout.parts
        for value in node.results:
            if value in parts:
                shrink(value, parts[value].axis, node, self.ranks)
        if not node.results or node.results[0] not in parts:
            return
        axis = parts[node.results[0]].axis
        if takes_sizes(node):
            self._resize_sizes(node, axis)
        if node.attributes.get("sizes") is not None:
            cut = node.attributes.integer("axis") % typed(node.results[0]).rank
            if cut == axis:
                made = tuple(typed(value).shape[axis] for value in node.results)
                self._graph.set_attributes(node, sizes=made)

    def _resize_sizes(self, node: Node, axis: int) -> None:
        """Give a reshape the sizes of its part; what it solves or copies stays."""
        sizes = sizes_of(node)
        assert sizes is not None  # the layout has asked
        place = axis - (typed(node.results[0]).rank - len(sizes))
        old = sizes[place]
        if isinstance(old, int) and old <= 0:
            return
        new = typed(node.results[0]).shape[axis]
        elements = (*sizes[:place], new, *sizes[place + 1 :])
        index = TAKE_SIZES[node.op]
        type_ = typed(node.operands[index])
        constant = self._graph.insert(
            node,
            "constant",
            (),
            (f"{node.name}.part", type_),
            {"dtype": type_.dtype, "shape": (len(elements),), "elements": elements},
        )
        self._graph.set_operand(node, index, constant)

    def _share_inputs(self) -> None:
        """All-reduce, in backward, what layers by columns want of their input."""
        shared: dict[Value, Value] = {}
        for node in self.layout.columns:
            x = node.operands[0]
            if x not in shared:
                result = (f"{node.name}.input", typed(x))
                shared[x] = self._graph.insert(
                    node, "replicated", (x,), result, communicator(self.ranks)
                )
            self._graph.set_operand(node, 0, shared[x])

    def _add_up(self) -> None:
        """All-reduce what layers by rows have of their sums."""
        waiting: list[Node] = []

        def step(node: Node) -> None:
            if waiting:
                self._reduce(waiting.pop())
            if node in self._biases:
                waiting.append(node)

        self._graph.rewrite(step)
        if waiting:
            self._reduce(waiting.pop())

    def _reduce(self, node: Node) -> None:
        graph, value = self._graph, node.results[0]
        readers, made = graph.uses(value), self._after(node, "all_reduce", "sum")
        for bias in self._biases[node]:
            made = self._after(node, "add", "biased", made, bias)
        for use in readers:
            graph.set_operand(use.node, use.index, made)
        graph.outputs = [
            made if output is value else output for output in graph.outputs
        ]

    def _after(self, node: Node, op: str, name: str, *operands: Value) -> Value:
        """Write a node of the type of a layer; a collective of it without operands."""
        graph, value = self._graph, node.results[0]
        made = graph.add(
            op,
            operands or (value,),
            [graph.fresh_name(f"{value.name}.{name}")],
            {} if operands else communicator(self.ranks),
            location=node.location,
        )
        made.results[0].type = value.type
        return made.results[0]


def _matmul(node: Node) -> Replacement:
    """Return a linear layer without its bias."""
    operands, result = node.operands[:2], node.results[0]
    return Replacement(node.op, operands, node.attributes, result, node.location)
