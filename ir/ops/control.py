"""Control flow, and ops perfc has no definition of."""

from __future__ import annotations

from perfc.ir.opdef import OpDef
from perfc.ir.ops.rules import OPTIONAL_INTS, touch_all


def _control(name: str, regions: int, summary: str) -> OpDef:
    return OpDef(
        name=name,
        arity=(0, None),
        results=None,
        infer=lambda attributes, operands: [],
        work=touch_all,
        regions=regions,
        summary=summary,
    )


LOOP = _control("loop", 1, "a loop: trip count, condition, carried values; one region")
IF = _control("if", 2, "a branch: condition; then and else regions")
SCAN = OpDef(
    name="scan",
    arity=(1, None),
    results=None,
    infer=lambda attributes, operands: [],
    work=touch_all,
    regions=1,
    attributes={
        "inputs": (int,),
        "input_axes": OPTIONAL_INTS,
        "input_reverse": OPTIONAL_INTS,
        "output_axes": OPTIONAL_INTS,
        "output_reverse": OPTIONAL_INTS,
    },
    summary="a loop over slices: states, then the tensors sliced; one region",
)
ITEM = OpDef(
    name="item",
    arity=(1, 1),
    results=0,
    infer=lambda attributes, operands: [],
    work=touch_all,
    summary="the host reads a scalar, and waits for it",
)
UNKNOWN = OpDef(
    name="unknown",
    arity=(0, None),
    results=None,
    infer=lambda attributes, operands: [],
    work=touch_all,
    attributes={"op": (str,)},
    summary="an op perfc has no definition of; costed by its bytes, and reported",
)

OPS = (LOOP, IF, SCAN, ITEM, UNKNOWN)
