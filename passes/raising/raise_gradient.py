"""Recognise gradients and losses in what torch.export makes of them."""

from __future__ import annotations

from typing import ClassVar

import attrs

from perfc.ir import AnyKey, Node, Program
from perfc.passes import raising
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.facts import ELEMENTS, TYPED


@attrs.frozen
class RaiseGradient(Transform):
    """Turn what a joint graph spells out into the ops that eager PyTorch calls.

    `torch.export` writes forward and backward together in ATen's core ops. Eager
    PyTorch has a kernel for most gradients and losses; the formulas that stand for
    them are found and replaced. Graphs without a backward are left alone.
    """

    name: ClassVar[str] = "raise-gradient"
    phase: ClassVar[Phase] = Phase.SOURCE
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})
    preserves: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    def run(self, program: Program, ctx: PassContext) -> None:
        """Raise in every op graph that has a backward."""
        for rank in program.classes:
            graph = rank.ops
            if graph is None or not any(map(_is_backward, graph)):
                continue
            raising.raise_gradients(graph)


def _is_backward(node: Node) -> bool:
    return node.location.phase == "backward"
