"""The pass `tensor-parallel`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

import attrs

from perfc.ir import (
    AnyKey,
    AttrValue,
    Dim,
    Graph,
    Node,
    Program,
    RankClass,
    Replacement,
    UnsupportedModelError,
    UsageError,
    Value,
)
from perfc.passes.base import PassContext, Transform
from perfc.passes.facts import TYPED
from perfc.passes.forward_graph import forward_graph
from perfc.passes.split_axes import TAKE_SIZES, sizes_of
from perfc.passes.tape import typed
from perfc.passes.tensor_layout import LINEAR, TensorLayout
from perfc.passes.training_source import separate_vectors

GROUP = STREAM = "tp"
"""Name of the communicator of ranks that share layers, and of its stream."""

_NAMED = 6
"""Modules that a remark names."""


@attrs.frozen
class TensorParallel(Transform):
    """Share the linear layers of a model among ranks, as Megatron-LM does.

    Of a pair of layers the first is split by columns, the second by rows; what lies
    between runs on parts: activations, attention head by head. The sums of the second
    are all-reduced in forward, and in backward the gradient of the first one's input.
    All else runs on every rank alike: norms, embeddings, a head whose outputs are
    needed whole. The ranks are one replica of the model, and have one batch.

    It runs before `training` and in front of passes that make replicas.

    Attributes:
        ranks: How many ranks share the layers.

    Raises:
        UsageError: the option cannot be, there are several ranks, or a backward pass.
        UnsupportedModelError: no pair of layers can be shared, or heads or features do
            not divide.

    """

    name: ClassVar[str] = "tensor-parallel"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED})

    ranks: int

    def __attrs_post_init__(self) -> None:
        """Check the option."""
        least = 2
        if self.ranks < least:
            msg = f"ranks={self.ranks} of {self.name}: expected at least {least}"
            raise UsageError(msg)

    def run(self, program: Program, ctx: PassContext) -> Program:
        """Share the layers of the one graph there is."""
        graph = forward_graph(program, self.name)
        separate_vectors(graph, ctx)
        layout = TensorLayout.of(graph)
        if not layout.rows:
            msg = (
                f"{graph} has no linear layers that {self.name} could share: one "
                "split by columns, and behind it one by rows"
            )
            raise UnsupportedModelError(msg)
        _remark(layout, ctx)
        _Writer(layout, self.ranks).write()
        made = RankClass(tuple(range(self.ranks)), ops=graph)
        return attrs.evolve(program, classes=(made,))


def _remark(layout: TensorLayout, ctx: PassContext) -> None:
    """Say which layers are not shared: of attention all should be."""
    linear = sum(node.op == LINEAR for node in layout.graph)
    shared = f"{linear - len(layout.whole)} of {linear} linear layers are shared"
    whole = f"; every rank has {_listed(layout.whole)} whole" if layout.whole else ""
    ctx.note("shared-layers", shared + whole)
    attention = layout.whole_attention
    if attention:
        ctx.warn(
            "whole-attention",
            f"heads of {_listed(attention)} are not shared: every rank computes all, "
            "and has the layers in front of them and behind whole",
        )


def _listed(nodes: Sequence[Node]) -> str:
    """Name modules; those that differ in their numbers only, once, with stars."""
    paths = (node.location.module or node.name for node in nodes)
    names = list(dict.fromkeys(re.sub(r"(?<=\.)\d+(?=\.)", "*", p) for p in paths))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


@attrs.define(eq=False)
class _Writer:
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

    @property
    def _communicator(self) -> dict[str, AttrValue]:
        return {"group": GROUP, "ranks": self.ranks, "stream": STREAM}

    def write(self) -> None:
        """Make values and weights parts, and put the collectives in."""
        for node in self._graph:
            self._resize(node)
        for node in self.layout.columns:
            self._split_weight(node, into=0)
            for bias in node.operands[2:]:
                self._shrink_parameter(bias, typed(bias).rank - 1, node)
        for node in self.layout.biases:
            if node.op == "gather":
                self._shrink_parameter(node.operands[0], 1, node)
        self._take_biases()
        for node in self._biases:
            self._split_weight(node, into=1)
        self._share_inputs()
        self._add_up()

    def _take_biases(self) -> None:
        """Leave layers by rows their products alone: a sum has the bias once."""
        graph, rows = self._graph, self.layout.rows
        biases = {node.results[0].name: node.operands[2:] for node in rows}
        graph.replace({node: _product(node) for node in rows if node.operands[2:]})
        for name, bias in biases.items():
            node = graph.value(name).producer
            assert node is not None  # noqa: S101 - a layer's result
            self._biases[node] = bias

    def _part(self, dim: Dim, node: Node) -> int:
        """Return a rank's part of a size.

        Raises:
            UnsupportedModelError: it does not divide.

        """
        if isinstance(dim, int) and dim % self.ranks == 0:
            return dim // self.ranks
        where = node.location.module or str(node)
        msg = (
            f"{where}: {dim} of {node.name} do not divide by {self.ranks} ranks of "
            "tensor-parallel"
        )
        raise UnsupportedModelError(msg)

    def _shrink(self, value: Value, axis: int, node: Node) -> None:
        type_ = typed(value)
        part = self._part(type_.shape[axis], node)
        shape = (*type_.shape[:axis], part, *type_.shape[axis + 1 :])
        value.type = attrs.evolve(type_, shape=shape)

    def _shrink_parameter(self, value: Value, axis: int, node: Node) -> None:
        """Keep a part of a parameter, and of what it is cast to or turned into."""
        self._shrink(value, axis, node)
        made = value.producer
        if made is None:
            return
        if made.op == "transpose":
            axis = made.attributes.integers("perm")[axis]
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
                self._shrink(value, parts[value].axis, node)
        if not node.results or node.results[0] not in parts:
            return
        axis = parts[node.results[0]].axis
        if node.op in TAKE_SIZES:
            self._resize_sizes(node, axis)
        sizes = node.attributes.get("sizes")
        if node.op == "split" and sizes is not None:
            cut = node.attributes.integer("axis") % typed(node.results[0]).rank
            if cut == axis:
                made = tuple(typed(value).shape[axis] for value in node.results)
                self._graph.set_attributes(node, sizes=made)

    def _resize_sizes(self, node: Node, axis: int) -> None:
        """Give a reshape the sizes of its part; what it solves or copies stays."""
        sizes = sizes_of(node)
        assert sizes is not None  # noqa: S101 - the layout has asked
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
        """Add up, in backward, what layers by columns want of their input."""
        shared: dict[Value, Value] = {}
        for node in self.layout.columns:
            x = node.operands[0]
            if x not in shared:
                result = (f"{node.name}.input", typed(x))
                shared[x] = self._graph.insert(
                    node, "replicated", (x,), result, self._communicator
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
        readers, made = graph.uses(value), self._behind(node, "all_reduce", "sum")
        for bias in self._biases[node]:
            made = self._behind(node, "add", "biased", made, bias)
        for use in readers:
            graph.set_operand(use.node, use.index, made)
        graph.outputs = [
            made if output is value else output for output in graph.outputs
        ]

    def _behind(self, node: Node, op: str, name: str, *operands: Value) -> Value:
        """Write a node of the type of a layer; a collective of it without operands."""
        graph, value = self._graph, node.results[0]
        made = graph.add(
            op,
            operands or (value,),
            [graph.fresh_name(f"{value.name}.{name}")],
            {} if operands else self._communicator,
            location=node.location,
        )
        made.results[0].type = value.type
        return made.results[0]


def _product(node: Node) -> Replacement:
    """Return a linear layer without its bias."""
    operands, result = node.operands[:2], node.results[0]
    return Replacement(node.op, operands, node.attributes, result, node.location)
