"""Sequences of tensors and optional ones: Python's lists and None in eager PyTorch.

They have no tensor type and do no work; the pass `resolve-control-flow` puts the
tensors themselves in their place.
"""

from __future__ import annotations

from perfc.ir.opdef import OpDef, named
from perfc.ir.ops.rules import OPTIONAL_BOOL, OPTIONAL_INT, declared, touch_all


def _sequence_op(name: str, arity: tuple[int, int | None], summary: str) -> OpDef:
    return OpDef(
        name=name, arity=arity, infer=declared, work=touch_all, summary=summary
    )


SEQUENCE_MAP = OpDef(
    name="sequence_map",
    arity=(1, None),
    results=None,
    infer=lambda attributes, operands: [],
    work=touch_all,
    regions=1,
    summary="one region applied to each element of sequences: sequences",
)
SPLIT_TO_SEQUENCE = OpDef(
    name="split_to_sequence",
    arity=(1, 2),
    infer=declared,
    work=touch_all,
    attributes={"axis": (int,), "keepdims": OPTIONAL_BOOL},
    summary="a sequence of pieces along one axis, without copying",
)
CONCAT_FROM_SEQUENCE = OpDef(
    name="concat_from_sequence",
    arity=(1, 1),
    infer=declared,
    work=touch_all,
    attributes={"axis": (int,), "new_axis": OPTIONAL_INT},
    summary="the tensors of a sequence, joined",
)

OPS = named(
    _sequence_op("sequence_empty", (0, 0), "an empty sequence of tensors"),
    _sequence_op("sequence_construct", (1, None), "a sequence of the operands"),
    _sequence_op("sequence_insert", (2, 3), "a sequence with one tensor more"),
    _sequence_op("sequence_erase", (1, 2), "a sequence with one tensor less"),
    _sequence_op("sequence_at", (2, 2), "one tensor of a sequence"),
    _sequence_op("sequence_length", (1, 1), "the number of tensors of a sequence"),
    _sequence_op("optional_empty", (0, 0), "nothing, where there may be a tensor"),
    _sequence_op("optional_has_element", (1, 1), "whether there is something"),
    SEQUENCE_MAP,
    SPLIT_TO_SEQUENCE,
    CONCAT_FROM_SEQUENCE,
)
