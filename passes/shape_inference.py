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
            worker = Inference(rank.ops, self.ops)
            for node in rank.ops:
                worker.infer(node)
            _remark(worker, ctx)
            ctx.set(TYPED, rank.ops, True)
            ctx.set(ELEMENTS, rank.ops, worker.elements)


def _remark(worker: Inference, ctx: PassContext) -> None:
    """Say in one go which types were assumed."""
    if not worker.assumed:
        return
    shown = [
        f"{op} ({values[0]} is taken to be {values[0].type}"
        + (f", and {len(values) - 1} more)" if len(values) > 1 else ")")
        for op, values in worker.assumed.items()
    ]
    ctx.warn(
        "type-assumed",
        f"nothing declares the results of {', '.join(shown)}; declare them in the "
        "model (an ONNX value_info)",
    )
