"""The pass `fuse-qdq`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, TypeAlias

import attrs

from perfc.ir import DTYPES, AnyKey, AttrValue, DType, Graph, Node, Program, Value
from perfc.ir.core import Replacement
from perfc.ir.node_kinds import is_convolution, is_linear
from perfc.ir.record import Record
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.graphs import typed
from perfc.passes.precision.quantized_linears import requantize

PRODUCTS = frozenset({"matmul", "linear", "conv"})
"""Ops that have kernels of 8 bits."""

_DEQUANTIZE = "dequantize"
_EIGHT, _BIAS, _SCALE = 8, 2, 1

_Factors: TypeAlias = tuple[Node, Node]
"""What dequantises both operands of a product."""


@attrs.frozen
class FuseQdq(Transform):
    """Multiply in 8 bits where a file dequantises both operands of a product.

    Files of quantised models have a `DequantizeLinear` before each operand of a
    product, and a `QuantizeLinear` behind it ("QDQ"). TensorRT, ONNX Runtime and
    Inductor turn that into one kernel of 8 bits, whose end undoes the scales and writes
    what the next one reads; eager PyTorch runs what is written. Fused are products of
    two operands of 8 bits, of which activations have one scale for all, or for each
    row, and weights one for all, or for each column. It is part of `--runtime
    compiled`.
    """

    name: ClassVar[str] = "fuse-qdq"
    phase: ClassVar[Phase] = Phase.FORWARD
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})
    provides: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    def run(self, program: Program, ctx: PassContext) -> None:
        """Fuse in every op graph; say so where there is nothing to fuse."""
        found = 0
        for rank in program.classes:
            if rank.ops is None:
                continue
            known = ctx.get(ELEMENTS, rank.ops)
            found += _fuse(rank.ops)
            alive = frozenset(rank.ops.values())
            kept = {value: each for value, each in known.items() if value in alive}
            ctx.set(TYPED, rank.ops, True)
            ctx.set(ELEMENTS, rank.ops, kept)
        if not found:
            ctx.note("no-qdq", "no product has two operands that are dequantised")


def unfused(graph: Graph) -> Iterator[Node]:
    """Yield the products that the pass would turn into ones of 8 bits."""
    return (node for node, _ in _pairs(graph))


def _pairs(graph: Graph) -> Iterator[tuple[Node, _Factors]]:
    for node in graph:
        factors = _factors(node) if node.op in PRODUCTS else None
        if factors is not None:
            yield node, factors


def _fuse(graph: Graph) -> int:
    """Fuse what can be; return how many products that are."""
    found = dict(_pairs(graph))
    if not found:
        return 0
    names = [node.results[0].name for node in found]
    graph.replace({node: _fused(node, factors) for node, factors in found.items()})
    graph.erase_dead(keep=lambda node: node.op != _DEQUANTIZE)
    for name in names:
        requantize(graph, _with_bias(graph, graph.value(name).producer))
    return len(found)


def _factors(node: Node) -> _Factors | None:
    """Return the nodes that dequantise both operands, if a product of 8 bits fits."""
    found: list[Node] = []
    for place, value in enumerate(node.operands[:_BIAS]):
        maker = value.producer
        if maker is None or maker.op != _DEQUANTIZE or not _fits(maker, node, place):
            return None
        found.append(maker)
    x, weight = (_dtype(maker.operands[0]) for maker in found)
    if x.is_float != weight.is_float:
        return None
    return found[0], found[1]


def _fits(maker: Node, node: Node, place: int) -> bool:
    """Whether a product of 8 bits can undo the scales of one of its operands."""
    source, scale = maker.operands[0].type, maker.operands[1].type
    if source is None or scale is None or source.dtype.bits != _EIGHT:
        return False
    if maker.attributes.get("block_size") is not None or source.dtype.kind == "bool":
        return False
    if scale.numel == 1:
        return True
    axis = maker.attributes.integer("axis", 1)
    axis = axis % source.rank if source.rank else 0
    if place == 0:  # a scale for each row
        return source.rank > 1 and axis == source.rank - _BIAS and node.op != "conv"
    if is_convolution(node):
        return axis == 0
    turned = is_linear(node) and not node.attributes.flag("weight_is_kn")
    return axis == (0 if turned else source.rank - 1)


def _dtype(value: Value) -> DType:
    return typed(value).dtype


def _fused(node: Node, factors: _Factors) -> Replacement:
    """Return the product of 8 bits; scales and zero points are read beside."""
    sides = [maker.operands for maker in factors]
    scales = [value for operands in sides for value in operands[_SCALE:]]
    attributes: dict[str, AttrValue] = dict(node.attributes)
    attributes["dtype"] = _dtype(node.results[0])
    op, bias = node.op, [*map(_stored, node.operands[_BIAS:])]
    if op == "linear":
        turned = not attributes.pop("weight_is_kn", False)
        attributes.pop("transposed_by_exporter", None)
        attributes |= {"weight_is_nk": True} if turned else {}
        op = "matmul"
    first = bias if op == "conv" else []
    rest = [] if op == "conv" else bias
    operands = (sides[0][0], sides[1][0], *first, *scales, *rest)
    return Replacement(op, operands, Record(attributes), node.results[0], node.location)


def _stored(bias: Value) -> Value:
    """Return a bias as it is stored: the product's kernel undoes its scale, too."""
    maker = bias.producer
    if maker is None or maker.op != _DEQUANTIZE:
        return bias
    return maker.operands[0]


def _with_bias(graph: Graph, product: Node | None) -> Node | None:
    """Let a product of 8 bits add the vector that only its reader adds."""
    if product is None or product.op == "conv":
        return product
    value = product.results[0]
    readers = [*graph.readers(value)]
    if value in graph.outputs or len(readers) != 1 or readers[0].op != "add":
        return product
    (add,) = readers
    others = [each for each in add.operands if each is not value]
    if len(others) != 1 or not _is_vector(others[0], value):
        return product
    maker = others[0].producer
    if maker is not None and maker.op not in (_DEQUANTIZE, "constant"):
        return product
    operands = (*product.operands, _stored(others[0]))
    name = add.results[0].name
    new = Replacement(
        product.op, operands, product.attributes, add.results[0], product.location
    )
    graph.replace({add: new})
    graph.erase_dead(keep=lambda node: node is not product)
    return graph.value(name).producer


def _is_vector(value: Value, like: Value) -> bool:
    if value.type is None or like.type is None or value.type.dtype not in _FLOATS:
        return False
    return value.type.shape == like.type.shape[-1:]


_FLOATS = frozenset(DTYPES[name] for name in ("f32", "f16", "bf16"))
