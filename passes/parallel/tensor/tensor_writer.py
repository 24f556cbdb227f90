"""Writes the layers that ranks share, as `tensor_layout` finds them, into a graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from perfc.ir import AttrValue, Graph, Node, Value, node_kinds
from perfc.ir.core import Replacement
from perfc.ir.dims import Dim
from perfc.ir.opdef import Trait
from perfc.ir.support import UnsupportedModelError
from perfc.passes.graphs import (
    typed,
)
from perfc.passes.parallel.tensor import split_axes
from perfc.passes.parallel.tensor.tensor_layout import TensorLayout, is_of_experts

GROUP = STREAM = "tp"
"""Name of the communicator of ranks that share layers, and of its stream."""


def communicator(ranks: int) -> dict[str, AttrValue]:
    """Return the attributes of collectives of ranks that share layers."""
    return {"group": GROUP, "ranks": ranks, "stream": STREAM}


def shrink(value: Value, axis: int, node: Node, ranks: int) -> None:
    """Leave a rank's part of an axis of a value, which *node* reads or makes."""
    type_ = typed(value)
    dim = type_.shape[axis]
    part = dim // ranks
    if part * ranks != dim:
        raise _indivisible(node, dim, ranks)
    shape = (*type_.shape[:axis], part, *type_.shape[axis + 1 :])
    value.type = attrs.evolve(type_, shape=shape)


def _indivisible(node: Node, dim: Dim, ranks: int) -> UnsupportedModelError:
    where = node.location.module or str(node)
    msg = (
        f"{where}: {dim} of {node.name} do not divide by {ranks} ranks of "
        "tensor-parallel"
    )
    return UnsupportedModelError(msg)


@attrs.define(eq=False)
class TensorWriter:
    """Writes a layout into its graph."""

    layout: TensorLayout
    ranks: int
    _sums: dict[Node, Sequence[Value]] = attrs.field(
        factory=dict[Node, "Sequence[Value]"], init=False
    )
    """Whose results ranks add up, and the bias that is added to the sum, if any."""

    @property
    def _graph(self) -> Graph:
        return self.layout.graph

    def write(self) -> None:
        """Make values and weights parts, and put the collectives in."""
        for node in self._graph:
            if node.op == "slice" and node.results[0] in self.layout.parts:
                self._cut(node, self.layout.parts[node.results[0]].axis)
        for value in self.layout.given:
            self._begin(value)
        for node in self._graph:
            self._resize(node)
        for node in self.layout.columns:
            self._split_weight(node, into=0)
            for bias in node.operands[2:]:
                self._shrink_parameter(bias, typed(bias).rank - 1, node)
        for node in self._take_biases():
            self._split_weight(node, into=1)
        # All-reduce, in backward, what layers by columns want of their input.
        shared: dict[Value, Value] = {}
        for node in self.layout.columns:
            reader = self._dispatched(node) if is_of_experts(node) else node
            x = reader.operands[0]
            if x not in shared:
                shared[x] = self._replicate(reader)
            self._graph.set_operand(reader, 0, shared[x])
        self._add_up()

    def _take_biases(self) -> Iterator[Node]:
        """Leave layers by rows their matmuls alone: a sum has the bias once."""
        graph, rows = self._graph, self.layout.rows
        biases = {node.results[0].name: node.operands[2:] for node in rows}
        graph.replace({node: _matmul(node) for node in rows if node.operands[2:]})
        for name, bias in biases.items():
            node = graph.value(name).producer
            assert node is not None  # a layer's result
            self._sums[self._combined(node) if is_of_experts(node) else node] = bias
            yield node

    def _combined(self, node: Node) -> Node:
        """Return the node that adds up what experts make of a token, and rounds it.

        Until there all is linear, so that ranks send a row a token, not one an expert.
        """
        found, graph = node, self._graph
        while len(uses := graph.uses(node.results[0])) == 1 and not uses[0].index:
            before, node = node, uses[0].node
            if not _is_additive(node):
                break
            types = typed(before.results[0]), typed(node.results[0])
            if node.op == "reduce" or types[1].dtype.bits < types[0].dtype.bits:
                found = node
        return found

    def _dispatched(self, node: Node) -> Node:
        """Return the node that repeats tokens for the experts that a layer is of."""
        found, graph = node, self._graph
        while (made := node.operands[0].producer) is not None and _is_additive(made):
            if len(graph.uses(made.results[0])) > 1:
                break
            node = made
            found = node if node_kinds.is_gather(node) else found
        return found

    def _shrink_parameter(self, value: Value, axis: int, node: Node) -> None:
        """Keep a part of a parameter, and of what it is cast to or turned into."""
        shrink(value, axis, node, self.ranks)
        made = value.producer
        if made is None:
            return
        perm = node_kinds.permutation(made)
        axis = axis if perm is None else perm[axis]
        self._shrink_parameter(made.operands[0], axis, node)

    def _split_weight(self, node: Node, into: int) -> None:
        """Keep a part of the outputs (0) or of the inputs (1) of a layer."""
        weight = node.operands[1]
        last, is_kn = typed(weight).rank - 1, node.op == "matmul"
        is_kn = is_kn or node.attributes.flag("weight_is_kn")
        self._shrink_parameter(weight, last - (into if is_kn else 1 - into), node)

    def _begin(self, value: Value) -> None:
        """Make a part of what no layer makes: a table, an input, what is repeated."""
        node = value.producer
        if node is None:
            reader = self._graph.uses(value)[0].node
            shrink(value, self.layout.given[value], reader, self.ranks)
        elif node_kinds.is_gather(node):
            self._shrink_parameter(node.operands[0], 1, node)
        elif node.op == "expand":
            self._replicate(node)
        elif node.op == "range":
            start, _, step = (
                split_axes.elements_of(operand) for operand in node.operands
            )
            if start and step:  # the layout splits no other ranges
                count = typed(value).shape[0] // self.ranks
                self._set_constant(node, 1, (start[0] + count * step[0],))

    def _cut(self, node: Node, axis: int) -> None:
        """Cut a part where all of it is cut along its axis, as it has of each piece."""
        x, out = node.operands[0], node.results[0]
        bounds = split_axes.bounds_of(node, axis)
        if bounds is None or typed(x).shape[axis] == typed(out).shape[axis]:
            return
        place, start, end, step = bounds
        if step != 1:
            return  # from one end to the other, of a part as of the whole
        for index, bound in enumerate((start, end), start=1):
            if bound % self.ranks:
                raise _indivisible(node, bound, self.ranks)
            elements = split_axes.elements_of(node.operands[index])
            assert elements is not None  # the bounds are known
            new = (*elements[:place], bound // self.ranks, *elements[place + 1 :])
            self._set_constant(node, index, new)

    def _resize(self, node: Node) -> None:
        """Shrink the results of a node, and what it says of their sizes."""
        parts = self.layout.parts
        for value in node.results:
            if value in parts:
                shrink(value, parts[value].axis, node, self.ranks)
        if not node.results or node.results[0] not in parts:
            return
        axis = parts[node.results[0]].axis
        if split_axes.takes_sizes(node):
            self._resize_sizes(node, axis)
        if node.op == "empty":
            self._graph.set_attributes(node, shape=typed(node.results[0]).shape)
        if node.attributes.get("sizes") is not None:
            cut = node.attributes.integer("axis") % typed(node.results[0]).rank
            if cut == axis:
                made = tuple(typed(value).shape[axis] for value in node.results)
                self._graph.set_attributes(node, sizes=made)

    def _resize_sizes(self, node: Node, axis: int) -> None:
        """Give a reshape the sizes of its part; what it solves or copies stays."""
        sizes = split_axes.sizes_of(node)
        assert sizes is not None  # the layout has asked
        place = axis - (typed(node.results[0]).rank - len(sizes))
        old = sizes[place]
        if isinstance(old, int) and old <= 0:
            return
        new = typed(node.results[0]).shape[axis]
        elements = (*sizes[:place], new, *sizes[place + 1 :])
        self._set_constant(node, split_axes.TAKE_SIZES[node.op], elements)

    def _set_constant(self, node: Node, index: int, elements: Sequence[Dim]) -> None:
        """Give a node other elements of a constant, which others may read, too."""
        type_ = typed(node.operands[index])
        constant = self._graph.insert(
            node,
            "constant",
            (),
            (f"{node.name}.part", type_),
            {"dtype": type_.dtype, "shape": type_.shape, "elements": tuple(elements)},
        )
        self._graph.set_operand(node, index, constant)

    def _replicate(self, node: Node) -> Value:
        """All-reduce, in backward, what ranks want of a node's first operand."""
        x, group = node.operands[0], communicator(self.ranks)
        result = (f"{node.name}.input", typed(x))
        made = self._graph.insert(node, "replicated", (x,), result, group)
        self._graph.set_operand(node, 0, made)
        return made

    def _add_up(self) -> None:
        """All-reduce what layers by rows have of their sums."""
        waiting: list[Node] = []

        def step(node: Node) -> None:
            if waiting:
                self._reduce(waiting.pop())
            if node in self._sums:
                waiting.append(node)

        self._graph.rewrite(step)
        if waiting:
            self._reduce(waiting.pop())

    def _reduce(self, node: Node) -> None:
        graph, value = self._graph, node.results[0]
        readers, made = graph.uses(value), self._after(node, "all_reduce", "sum")
        for bias in self._sums[node]:
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


def _is_additive(node: Node) -> bool:
    """Whether a node of a sum is the sum of nodes: as of its operand 0."""
    if node.op == "reduce":
        return node.attributes["kind"] == "sum"
    return node_kinds.has_trait(node, Trait.KEEPS_ORDER) or node.op in (
        "cast",
        "gather",
        "mul",
    )


def _matmul(node: Node) -> Replacement:
    operands, result = node.operands[:2], node.results[0]
    return Replacement(node.op, operands, node.attributes, result, node.location)
