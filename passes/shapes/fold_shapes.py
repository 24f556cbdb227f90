"""Remove shape arithmetic, steps that change nothing, and what nobody reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from perfc.ir import AnyKey, Graph, Node, Program, Value, node_kinds
from perfc.ir.dims import Dim
from perfc.ir.opdef import Trait
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.facts import ELEMENTS, TYPED


@attrs.frozen
class FoldShapes(Transform):
    """Fold nodes whose results are known integers, then drop dead nodes.

    Shape subgraphs are an artefact of export: eager PyTorch computes them in
    Python. A folded value that something still reads (the target shape of a
    reshape, indices written in the file) becomes a `constant`. Identities and
    casts to the type at hand are such artefacts too, and go.
    """

    name: ClassVar[str] = "fold-shapes"
    phase: ClassVar[Phase] = Phase.SOURCE
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})
    provides: ClassVar[frozenset[AnyKey]] = frozenset()
    preserves: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    def run(self, program: Program, ctx: PassContext) -> None:
        """Fold every op graph."""
        for rank in program.classes:
            if rank.ops is not None:
                _fold(rank.ops, ctx.get(ELEMENTS, rank.ops))


def _fold(graph: Graph, elements: Mapping[Value, tuple[Dim, ...]]) -> None:
    for node in graph:
        if not node_kinds.is_constant(node) and (
            len(node.results) == 1 and node.results[0] in elements and not node.regions
        ):
            graph.make_constant(node, elements[node.results[0]])
        elif node_kinds.has_trait(node, Trait.CONVERTS) and _is_neutral(node):
            graph.replace_uses(node.results[0], node.operands[0])
    graph.erase_dead(keep=lambda node: node.has_effect)
    graph.erase_unused_parameters()


def _is_neutral(node: Node) -> bool:
    if node.attributes.get("dropout"):  # where training drops elements
        return False
    return node.operands[0].type == node.results[0].type
