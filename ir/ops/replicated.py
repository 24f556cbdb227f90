"""What all members of a communicator have alike, seen by autograd."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.ir.opdef import Abstract, OpDef, Trait, named
from perfc.ir.ops.collective import communicator_ranks
from perfc.ir.ops.rules import OPTIONAL_INT, OPTIONAL_TEXT, no_work
from perfc.ir.record import Record


def _infer(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    communicator_ranks(attributes)
    return [operands[0]]


REPLICATED = OpDef(
    name="replicated",
    arity=(1, 1),
    infer=_infer,
    work=no_work,
    attributes={
        "group": (str,),
        "ranks": (int,),
        "stride": OPTIONAL_INT,
        "stream": OPTIONAL_TEXT,
    },
    view=0,
    traits=frozenset({Trait.KEEPS_ORDER, Trait.KEEPS_SHAPE, Trait.SUMMED_GRADIENT}),
    summary="x, which all ranks have: their gradients of it are all-reduced",
)

OPS = named(REPLICATED)
