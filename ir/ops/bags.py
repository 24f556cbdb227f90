"""Lists of bags on their way between ranks: fbgemm's kernels around an all-to-all.

A list of bags is two tensors: how many indices each bag has (lengths), and the indices
of all bags one behind the other. TorchRec's `KeyedJaggedTensor` is one, table by table.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops.rules import touch_all
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import TensorType


def _lists(operands: Sequence[Abstract]) -> tuple[Abstract, Abstract]:
    for operand in operands:
        if operand.type.rank != 1 or operand.type.dtype.is_float:
            msg = f"expected lists of lengths and of indices, got {operand.type}"
            raise VerifyError(msg)
    return operands[0], operands[1]


def _count(attributes: Record, name: str) -> int:
    count = attributes.integer(name)
    if count < 1:
        msg = f"{name} = {count}, expected at least 1"
        raise VerifyError(msg)
    return count


def _infer_regroup(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    lengths, indices = _lists(operands)
    for name in ("ranks", "features"):
        _count(attributes, name)
    bounds = lengths.type.shape[0] + 1
    return [
        Abstract(indices.type),
        Abstract(attrs.evolve(indices.type, shape=(bounds,))),
    ]


REGROUP_BAGS = OpDef(
    name="regroup_bags",
    arity=(2, 2),
    results=2,
    infer=_infer_regroup,
    work=touch_all,
    attributes={"ranks": (int,), "features": (int,)},
    summary="lengths, indices, rank by rank: indices and offsets, table by table",
)


def _infer_bucketize(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    lengths, indices = _lists(operands)
    buckets = _count(attributes, "buckets")
    many = attrs.evolve(lengths.type, shape=(lengths.type.shape[0] * buckets,))
    return [Abstract(many), Abstract(indices.type)]


BUCKETIZE_BAGS = OpDef(
    name="bucketize_bags",
    arity=(2, 2),
    results=2,
    infer=_infer_bucketize,
    work=touch_all,
    attributes={"buckets": (int,)},
    summary="lengths, indices: those of each bucket of rows, one after another",
)


def _infer_checked(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    _lists(operands)
    return []


def _work_checked(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    return Work(0, sum(operand.nbytes for operand in operands), 0)


CHECK_BAGS = OpDef(
    name="check_bags",
    arity=(2, 2),
    results=0,
    infer=_infer_checked,
    work=_work_checked,
    summary="offsets, indices: whether each index is one of a row of its table",
)

OPS = named(REGROUP_BAGS, BUCKETIZE_BAGS, CHECK_BAGS)
