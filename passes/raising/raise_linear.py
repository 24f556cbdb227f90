"""Recognise linear layers in what exporters make of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from perfc.ir import AnyKey, AttrValue, Node, Program, Value
from perfc.ir.dims import Dim
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.raising.pattern import Raised, Trail, one_call, orders, raise_patterns

_FOLDED_NAME = "onnx::MatMul_"
"""What the legacy exporter calls a weight that it has transposed."""


@attrs.frozen
class RaiseLinear(Transform):
    """Turn a matmul with a 2-D parameter, and the bias after it, into `linear`.

    ONNX has no linear layer for more than two axes: exporters write `MatMul`
    with the transposed weight, and `Add`. A bias that the source adds itself,
    as its exporter notes, stays a kernel of its own.
    """

    name: ClassVar[str] = "raise-linear"
    phase: ClassVar[Phase] = Phase.SOURCE
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})
    preserves: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    def run(self, program: Program, ctx: PassContext) -> None:
        """Raise in every op graph."""
        for rank in program.classes:
            if rank.ops is None:
                continue
            matcher = _Matcher(ctx.get(ELEMENTS, rank.ops), set(rank.ops.parameters))
            raise_patterns(rank.ops, ("add", "matmul"), matcher.match)


@attrs.frozen(eq=False)
class _Matcher:
    elements: Mapping[Value, tuple[Dim, ...]]
    parameters: set[Value]

    def match(self, node: Node) -> Raised | None:
        if node.op == "matmul":
            return self._matmul(node)
        for matmul, bias in orders(node):
            trail = Trail(self.elements)
            trail.step(node.results[0], "add")
            inner = trail.step(matmul, "matmul")
            raised = None if inner is None else self._matmul(inner)
            if raised is None or not self._is_bias(bias, node):
                continue
            if one_call(trail.inside) is not False:
                operands = (*raised.operands, bias)
                inside = tuple(trail.inside)
                return attrs.evolve(raised, operands=operands, inside=inside)
        return None

    def _is_bias(self, value: Value, node: Node) -> bool:
        out = node.results[0].type
        return (
            value in self.parameters
            and value.type is not None
            and out is not None
            and value.type.shape == out.shape[-1:]
        )

    def _matmul(self, node: Node) -> Raised | None:
        if len(node.operands) != 2 or node.attributes.get("dtype") is not None:
            return None  # integers have a result of another type
        x, weight = node.operands
        attributes: dict[str, AttrValue] = {"weight_is_kn": True}
        turned = weight.producer
        if turned is not None and turned.op == "transpose":
            weight, attributes = turned.operands[0], {}
        is_matrix = weight.type is not None and weight.type.rank == 2
        rows = x.type is not None and x.type.rank > 1
        if weight not in self.parameters or not is_matrix or not rows:
            return None
        if attributes and (
            node.location.origin.startswith("aten.linear")
            or weight.name.startswith(_FOLDED_NAME)
        ):
            attributes["transposed_by_exporter"] = True
        return Raised("linear", (x, weight), attributes, (node,))
