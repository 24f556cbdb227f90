"""Control flow, sequences, and ops perfc has no definition of."""

from __future__ import annotations

from perfc.ir.opdef import OpDef
from perfc.ir.ops.rules import declared, touch_all


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
SEQUENCE_EMPTY = OpDef(
    name="sequence_empty",
    arity=(0, 0),
    infer=declared,
    work=touch_all,
    summary="an empty sequence of tensors",
)
SEQUENCE_INSERT = OpDef(
    name="sequence_insert",
    arity=(2, 3),
    infer=declared,
    work=touch_all,
    summary="a sequence with one tensor more",
)
CONCAT_FROM_SEQUENCE = OpDef(
    name="concat_from_sequence",
    arity=(1, 1),
    infer=declared,
    work=touch_all,
    attributes={"axis": (int,), "new_axis": (int, type(None))},
    summary="the tensors of a sequence, joined",
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

OPS = (LOOP, IF, SEQUENCE_EMPTY, SEQUENCE_INSERT, CONCAT_FROM_SEQUENCE, UNKNOWN)
