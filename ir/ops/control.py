"""Control flow, and ops perfc has no definition of."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.ir.launch import Work
from perfc.ir.opdef import OpDef, named
from perfc.ir.ops.rules import OPTIONAL_INT, OPTIONAL_INTS, touch_all
from perfc.ir.record import Record
from perfc.ir.types import TensorType


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


def _work_unknown(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Touch everything; flops are those that the user has said."""
    moved = touch_all(attributes, operands, results)
    flops = attributes.integer("flops", 0)
    return Work(flops, moved.bytes_read, moved.bytes_written)


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
    work=_work_unknown,
    attributes={"op": (str,), "flops": OPTIONAL_INT},
    summary="an op perfc has no definition of; costed by its bytes, and reported",
)

OPS = named(LOOP, IF, SCAN, ITEM, UNKNOWN)
