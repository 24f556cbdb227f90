"""Linear layers of few bits: their products, and what converts activations before."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.ir import DTYPES, AttrValue, Graph, Node, Record, TensorType, Value
from perfc.ir.core import CONST, Replacement
from perfc.ir.dims import ceil_div
from perfc.ir.ops.rules import as_int
from perfc.passes.graphs import typed
from perfc.passes.precision.stored_types import LinearType

_F32 = DTYPES["f32"]
_BIAS = 2

_COMMUTING = frozenset(
    {"relu", "reshape", "flatten", "squeeze", "unsqueeze", "identity"}
)
"""Ops that give the same on numbers divided by one positive scale."""


def pack_weights(graph: Graph, layers: Mapping[Node, LinearType]) -> None:
    """Store weights alone in few bits: one kernel unpacks and multiplies.

    Args:
        graph: The graph.
        layers: The linear layers, and their types.

    """
    replaced: dict[Node, Replacement] = {}
    for node, dtype in layers.items():
        features, inputs = _sizes(node)
        x, weight, *bias = node.operands
        scales = _weight_scales(graph, node, dtype)
        attributes: dict[str, AttrValue] = {
            "inputs": inputs,
            "features": features,
            "bits": dtype.weight.bits,
        }
        replaced[node] = Replacement(
            "packed_linear",
            (x, weight, scales, *bias),
            Record(attributes),
            node.results[0],
            node.location,
        )
    for node, dtype in layers.items():
        _retype(node.operands[1], dtype)
    if replaced:
        graph.replace(replaced)


@attrs.define(eq=False)
class QuantizedLinears:
    """Turns linear layers into products of few bits, in program order.

    Attributes:
        graph: The graph.
        layers: The linear layers, and their types.
        activations: Where the scales of activations come from, one of `ACTIVATIONS`.
        sum_bits: Width of the integers that products are added up in on a CPU.

    """

    graph: Graph
    layers: Mapping[Node, LinearType]
    activations: str
    sum_bits: int
    _replaced: dict[Node, Replacement] = attrs.field(
        factory=dict[Node, Replacement], init=False
    )
    _made: dict[tuple[Value, str], tuple[Value, Value]] = attrs.field(
        factory=dict["tuple[Value, str]", "tuple[Value, Value]"], init=False
    )
    """Quantised values, and their scales."""

    def run(self) -> None:
        """Go through the graph."""
        if not self.layers:
            return
        self.graph.rewrite(self._visit)
        for node, dtype in self.layers.items():
            _retype(node.operands[1], dtype)
        products = [node.results[0].name for node in self._replaced]
        self.graph.replace(self._replaced)
        for name in products:
            requantize(self.graph, self.graph.value(name).producer)

    def _visit(self, node: Node) -> None:
        dtype = self.layers.get(node)
        if dtype is None:
            return
        weight, out = node.operands[1], typed(node.results[0])
        attributes: dict[str, AttrValue] = {"dtype": out.dtype}
        if not node.attributes.flag("weight_is_kn"):
            attributes["weight_is_nk"] = True
        if dtype.rate == "int8" and self.sum_bits != 32:  # noqa: PLR2004 - the default
            attributes["sum_bits"] = self.sum_bits
        x, scale = self._quantized(node, dtype)
        scales = scale, _weight_scales(self.graph, node, dtype)
        self._replaced[node] = Replacement(
            "matmul",
            (x, weight, *scales, *node.operands[_BIAS:]),
            Record(attributes),
            node.results[0],
            node.location,
        )

    def _quantized(self, node: Node, dtype: LinearType) -> tuple[Value, Value]:
        """Return the activations in few bits, and scales: once for all readers."""
        x = node.operands[0]
        key = x, dtype.name
        if key not in self._made:
            dynamic = self.activations == "dynamic" or dtype.block
            made = self._dynamic if dynamic else self._by_one_scale
            self._made[key] = made(node, x, dtype)
        return self._made[key]

    def _dynamic(self, node: Node, x: Value, dtype: LinearType) -> tuple[Value, Value]:
        """One kernel finds the scale of each row, or block of it, and converts."""
        attributes: dict[str, AttrValue] = {"axis": -1, "dtype": dtype.weight}
        count = 1
        if dtype.block:
            attributes |= {"block_size": dtype.block, "scale_dtype": dtype.scale}
            count = ceil_div(typed(x).shape[-1], dtype.block)
        scale = dtype.scale if dtype.block else _F32
        types = (
            attrs.evolve(typed(x), dtype=dtype.weight),
            TensorType(scale, (*typed(x).shape[:-1], count)),
        )
        made = self._add(node, "dynamic_quantize", (x,), attributes, types)
        first, second = made.results
        return first, second

    def _by_one_scale(
        self, node: Node, x: Value, dtype: LinearType
    ) -> tuple[Value, Value]:
        """One kernel converts by a scale that is known, or that another has found."""
        number = TensorType(_F32, ())
        if self.activations == "static":
            said: dict[str, AttrValue] = {"dtype": _F32, "shape": (), "value": 1.0}
            made = self._add(node, "constant", (), said, (number,))
        else:
            made = self._add(node, "amax", (x,), {}, (number,))
        scale = made.results[0]
        types = (attrs.evolve(typed(x), dtype=dtype.weight),)
        quantized = self._add(
            node, "quantize", (x, scale), {"dtype": dtype.weight}, types
        )
        return quantized.results[0], scale

    def _add(
        self,
        node: Node,
        op: str,
        operands: tuple[Value, ...],
        attributes: dict[str, AttrValue],
        types: tuple[TensorType, ...],
    ) -> Node:
        """Put a node before that of a layer, which it is named for."""
        stem = f"{node.name}.{op}"
        stems = [f"{stem}.scale" if number else stem for number in range(len(types))]
        names = [*map(self.graph.fresh_name, stems)]
        made = self.graph.add(op, operands, names, attributes, location=node.location)
        for value, type_ in zip(made.results, types, strict=True):
            value.type = type_
        return made


def requantize(graph: Graph, product: Node | None) -> None:
    """Let a product write the few bits that its only reader wants.

    Ops between the two that one scale goes through, as `relu`, work on those; the node
    that would convert them is left out. Nothing is changed where anything else reads
    what the product writes, or where scales are found as the model runs.
    """
    if product is None:
        return
    value, between = product.results[0], list[Value]()
    returned = frozenset(graph.outputs)
    while True:
        if value in returned or len(readers := [*graph.readers(value)]) != 1:
            return
        (reader,) = readers
        between.append(value)
        if reader.op == "quantize":
            break
        if reader.op not in _COMMUTING or reader.operands[0] is not value:
            return
        value = reader.results[0]
    scale = reader.operands[1].producer
    if scale is None or scale.op != "constant":
        return
    dtype = reader.attributes.dtype("dtype")
    for each in between:
        each.type = attrs.evolve(typed(each), dtype=dtype)
    graph.set_attributes(product, dtype=dtype)
    graph.replace_uses(reader.results[0], value)
    graph.erase_dead(keep=lambda node: node is not reader)


def _sizes(node: Node) -> tuple[int, int]:
    features, inputs = map(as_int, typed(node.operands[1]).shape)
    if node.attributes.flag("weight_is_kn"):
        features, inputs = inputs, features
    return features, inputs


def _weight_scales(graph: Graph, node: Node, dtype: LinearType) -> Value:
    """Return the scales of a weight: of each of its features, or blocks of those."""
    weight = node.operands[1]
    name = f"{weight.name}_scale"
    known = graph.find(name)
    if known is not None:
        return known
    features, inputs = _sizes(node)
    shape = (features, ceil_div(inputs, dtype.block)) if dtype.block else (features,)
    return graph.add_parameter(name, TensorType(dtype.scale, shape), CONST)


def _retype(weight: Value, dtype: LinearType) -> None:
    weight.type = attrs.evolve(typed(weight), dtype=dtype.weight)
