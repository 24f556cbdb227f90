"""Give every value a type, and fold shape arithmetic on the way."""

from __future__ import annotations

from typing import ClassVar

import attrs

from perfc.ir import BUILTIN_OPS, AnyKey, OpRegistry, Program
from perfc.passes.base import Pass, PassContext
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.inference import Inference


@attrs.frozen
class ShapeInference(Pass):
    """Run the type rule of every op, in order.

    Types that the source declares are checked, not trusted: a number inferred
    against another number declared is an error. An op without a rule keeps its
    declared types, or takes the type of its first operand, and says so; what
    follows from such a guess never contradicts the source.
    Regions (loop bodies, branches) that are still there stay opaque.
    """

    name: ClassVar[str] = "shape-inference"
    provides: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    ops: OpRegistry = BUILTIN_OPS

    def run(self, program: Program, ctx: PassContext) -> None:
        """Fill in types and check the ones that are already there."""
        for rank in program.classes:
            if rank.ops is None:
                continue
            worker = Inference(rank.ops, self.ops, ctx.warn)
            for node in rank.ops:
                worker.infer(node)
            ctx.set(TYPED, rank.ops, True)
            ctx.set(ELEMENTS, rank.ops, worker.elements)
