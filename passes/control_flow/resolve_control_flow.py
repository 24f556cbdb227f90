"""Write out loops and branches, and put tensors in the place of sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from perfc.ir import Graph, Program
from perfc.ir.ops import BUILTIN_OPS
from perfc.lazy_table import LazyTable
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.shapes import Inference, remark_misfits

if TYPE_CHECKING:
    from perfc.passes.control_flow.unrolling import Rule

RULES: LazyTable[Rule] = LazyTable(
    "perfc.passes.control_flow",
    {
        "control_rules:CONTROL_RULES": "if loop scan",
        "sequence_rules:SEQUENCE_RULES": (
            "identity sequence_empty sequence_construct sequence_insert "
            "sequence_erase sequence_at sequence_length sequence_map "
            "split_to_sequence concat_from_sequence optional_empty "
            "optional_has_element"
        ),
    },
)
"""Rules by op name."""

_TRIGGERS = RULES.keys() - {"identity"}


@attrs.frozen
class ResolveControlFlow(Transform):
    """Replace control flow and sequences by the ops that eager PyTorch runs.

    The branch of an `if` whose condition is known stands in its place; `loop` and
    `scan` are unrolled; sequences and optional tensors are Python's, so they leave
    nothing behind. An `if` whose condition depends on data is taken to run the
    branch with more flops plus bytes each time, after the host has waited for the
    condition; it is reported. Conditions and trip counts are found by running the
    type rules on the way.
    """

    name: ClassVar[str] = "resolve-control-flow"
    phase: ClassVar[Phase] = Phase.SOURCE

    def run(self, program: Program, ctx: PassContext) -> None:
        """Rewrite every op graph that has any of this."""
        for rank in program.classes:
            if rank.ops is None or not has_control_flow(rank.ops):
                continue
            from perfc.passes.control_flow.unrolling import Unroller  # noqa: PLC0415 - rare

            inference = Inference(rank.ops, BUILTIN_OPS, hints=program.types_are_hints)
            Unroller(rank.ops, inference, RULES, ctx.warn).run()
            remark_misfits(inference, ctx)


def has_control_flow(graph: Graph) -> bool:
    """Whether *graph* has loops, branches or sequences."""
    return not _TRIGGERS.isdisjoint(node.op for node in graph)
