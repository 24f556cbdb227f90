"""Tensors as pieces of memory: allocated, overwritten, or another name for one."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, Trait, named
from perfc.ir.ops import rules
from perfc.ir.record import Record
from perfc.ir.types import DType, TensorType

ALIAS = OpDef(
    name="alias",
    arity=(1, 1),
    infer=rules.first_operand,
    work=rules.no_work,
    attributes={"call": (str,)},
    view=0,
    traits=frozenset({Trait.KEEPS_ORDER, Trait.KEEPS_SHAPE}),
    summary="the same tensor under another name: a call that costs the host time",
)


def _infer_empty(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    shape = attributes.dims("shape")
    return [Abstract(TensorType(attributes.dtype("dtype"), shape).checked())]


EMPTY = OpDef(
    name="empty",
    arity=(0, 0),
    infer=_infer_empty,
    work=rules.no_work,
    attributes={"dtype": (DType,), "shape": (tuple,)},
    summary="memory for a tensor, not written",
)


def _work_overwrite(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    return Work(0, 0, results[0].nbytes)


OVERWRITE = OpDef(
    name="overwrite",
    arity=(1, 1),
    infer=rules.first_operand,
    work=_work_overwrite,
    attributes={"value": rules.OPTIONAL_FLOAT, **rules.IN_PLACE},
    summary="every element of a tensor replaced by one number",
)


def _work_assign(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    return Work(0, operands[1].nbytes, results[0].nbytes)


ASSIGN = OpDef(
    name="assign",
    arity=(2, 2),
    infer=rules.first_operand,
    work=_work_assign,
    attributes=rules.IN_PLACE,
    summary="x, source: every element of x replaced by the source's, converted",
)


VIEW = OpDef(
    name="view",
    arity=(1, 1),
    infer=rules.declared,
    work=rules.no_work,
    attributes={"call": (str,), "contiguous": rules.OPTIONAL_BOOL},
    view=0,
    summary="some elements in place, as no other op says; without `call`, made before",
)


def _keep(attributes: Record, operands: Sequence[Abstract]) -> Sequence[None]:
    return []


HOST = OpDef(
    name="host",
    arity=(0, None),
    results=None,
    infer=_keep,
    work=rules.no_work,
    attributes={
        "op": (str,),
        "us": (float, int, type(None)),  # what the host takes, if no profile says it
        **rules.IN_PLACE,
    },
    traits=frozenset({Trait.HOST}),
    summary="an op on tensors of the host: nothing for the device to do",
)

OPS = named(ALIAS, EMPTY, OVERWRITE, ASSIGN, VIEW, HOST)
