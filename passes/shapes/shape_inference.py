"""Give every value a type, and fold shape arithmetic on the way."""

from __future__ import annotations

from typing import ClassVar

import attrs

from perfc.ir import AnyKey, Program
from perfc.ir.ops import BUILTIN_OPS
from perfc.passes.base import Pass, PassContext
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.shapes import inference_remarks
from perfc.passes.shapes.inference import Inference


@attrs.frozen
class ShapeInference(Pass):
    """Run the type rule of every op, in order.

    Types that the source declares are checked, not trusted: a number inferred
    against another number declared is an error, or a warning where the program's
    types are hints, as an ONNX file's are: exporters get them wrong, and runtimes
    go by what they infer. Another element type is an error in any case.
    An op without a rule keeps its declared types, or takes the type of its first
    operand, and says so; what follows from such a guess never contradicts the
    source, and an op that does not take it is an unknown one from here on.
    Regions (loop bodies, branches) that are still there stay opaque.
    """

    name: ClassVar[str] = "shape-inference"
    provides: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    def run(self, program: Program, ctx: PassContext) -> None:
        """Fill in types and check the ones that are already there."""
        for rank in program.classes:
            if rank.ops is None:
                continue
            worker = Inference(rank.ops, BUILTIN_OPS, hints=program.types_are_hints)
            for node in rank.ops:
                worker.infer(node)
            inference_remarks.remark_assumed(worker, ctx)
            inference_remarks.remark_misfits(worker, ctx)
            inference_remarks.remark_overruled(worker, ctx)
            ctx.set(TYPED, rank.ops, True)
            ctx.set(ELEMENTS, rank.ops, worker.elements)
