"""Recognise attention that is spelled out."""

from __future__ import annotations

from typing import ClassVar

import attrs

from perfc.ir import AnyKey, Graph, Node, Program
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.raising.attention_pattern import match_attention
from perfc.passes.raising.pattern import Raised, raise_patterns


@attrs.frozen
class RaiseAttention(Transform):
    """Turn two matmuls around a softmax, scaled and masked, into `attention`.

    Both exporters write `F.scaled_dot_product_attention` out below opset 23, and
    models spell attention out themselves. It becomes one op either way. What
    eager PyTorch launches differs: where the source makes the calls itself, the
    attribute `spelled_out` lists them. That is told by the call the exporter
    notes; without notes, by the scale: nobody but the exporters multiplies both
    the queries and the keys by its root.

    Attributes:
        spelled_out: Whether to raise what the source itself spells out in several
            calls. A training step is derived from these calls.

    """

    name: ClassVar[str] = "raise-attention"
    phase: ClassVar[Phase] = Phase.SOURCE
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})
    preserves: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    spelled_out: bool = True

    def run(self, program: Program, ctx: PassContext) -> None:
        """Raise in every op graph."""
        for rank in program.classes:
            if rank.ops is not None:
                self._raise(rank.ops, ctx)

    def _raise(self, graph: Graph, ctx: PassContext) -> None:
        elements = ctx.get(ELEMENTS, graph)

        def match(node: Node) -> Raised | None:
            found = match_attention(node, elements)
            if found is None:
                return None
            operands = (found.queries, found.keys, found.values, *found.masks)
            turned = (1,) if found.turned else ()
            return Raised("attention", operands, found.attributes, found.inside, turned)

        raise_patterns(graph, ("matmul",), match, spelled_out=self.spelled_out)
