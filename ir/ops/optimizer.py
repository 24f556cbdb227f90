"""Steps of optimizers: what changes parameters and states in place.

`foreach` is one of PyTorch's `torch._foreach_*` functions: the same elementwise
arithmetic on every tensor of a list. An op here that works in place has no results:
its operands keep their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfc.ir.choices import OPTIMIZER_STATES
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops.rules import IN_PLACE, OPTIONAL_FLOAT, OPTIONAL_INT, OPTIONAL_TEXT
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import TensorType

FOREACH_FLOPS: Mapping[str, int] = {
    "add": 1,
    "sub": 1,
    "mul": 1,
    "div": 1,
    "neg": 1,
    "abs": 1,
    "sign": 2,
    "sqrt": 2,
    "rsqrt": 2,
    "exp": 3,
    "log": 3,
    "reciprocal": 2,
    "pow": 4,
    "maximum": 1,
    "minimum": 1,
    "addcmul": 3,
    "addcdiv": 3,
    "lerp": 3,
    "copy": 0,
    "zero": 0,
    "norm": 2,
    "unscale": 2,
    "update_scale": 4,
}
"""Kinds, and flops for each element."""

OPTIMIZER_FLOPS: Mapping[str, int] = {
    "sgd": 4,
    "adagrad": 6,
    "rowwise_adagrad": 6,
    "adam": 14,
    "adamw": 15,
}
"""Kinds, and flops for each element of the parameters."""


def state_types(kind: str, table: TensorType) -> tuple[TensorType, ...]:
    """Return the types of the states that an optimizer keeps for a table."""
    if kind not in OPTIMIZER_STATES:
        known = ", ".join(OPTIMIZER_STATES)
        msg = f"optimizer {kind!r} takes no sparse gradients; those that do: {known}"
        raise VerifyError(msg)
    row = TensorType(table.dtype, table.shape[:1])
    states = OPTIMIZER_STATES[kind]
    return tuple(table if state == "element" else row for state in states)


def check_states(
    kind: str, tables: Sequence[TensorType], states: Sequence[TensorType]
) -> None:
    """Raise `VerifyError` unless *states* have the shapes of `state_types`.

    They come list by list: the first state of every table, then the second.
    """
    per_table = [state_types(kind, table) for table in tables]
    expected = [type_ for types in zip(*per_table, strict=True) for type_ in types]
    if [state.shape for state in states] != [type_.shape for type_ in expected]:
        names = (", ".join(map(str, types)) or "none" for types in (expected, states))
        msg = "states of {}: expected {}, got {}".format(kind, *names)
        raise VerifyError(msg)


def _lists(attributes: Record, operands: Sequence[object]) -> tuple[int, int]:
    lists = attributes.integer("lists")
    if lists < 1 or len(operands) % lists:
        msg = f"{len(operands)} operands are not {lists} lists of one length"
        raise VerifyError(msg)
    return lists, len(operands) // lists


def _known(attributes: Record, kinds: Mapping[str, int]) -> int:
    kind = attributes.text("kind")
    if kind not in kinds:
        msg = f"kind {kind!r} is none of {', '.join(kinds)}"
        raise VerifyError(msg)
    return kinds[kind]


def _infer_foreach(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    _known(attributes, FOREACH_FLOPS)
    _, tensors = _lists(attributes, operands)
    if attributes.flag("in_place"):
        return []
    if attributes.text("kind") == "norm":
        types = (x.type for x in operands[:tensors])
        return [Abstract(TensorType(type_.dtype, ())) for type_ in types]
    return [Abstract(operand.type) for operand in operands[:tensors]]


def _work_foreach(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    flops = _known(attributes, FOREACH_FLOPS)
    _, tensors = _lists(attributes, operands)
    own = operands[:tensors]
    in_place = attributes.flag("in_place")
    written = sum(t.nbytes for t in (own if in_place else results))
    overwritten = in_place and attributes.text("kind") in ("copy", "zero")
    read = operands[tensors:] if overwritten else operands
    elements = sum(t.numel for t in own)
    return Work(flops * elements, sum(t.nbytes for t in read), written)


FOREACH = OpDef(
    name="foreach",
    arity=(1, None),
    results=None,
    infer=_infer_foreach,
    work=_work_foreach,
    attributes={
        "kind": (str,),
        "lists": (int,),
        **IN_PLACE,  # then there are no results
    },
    summary="lists of tensors, one list after another: elementwise, tensor by tensor",
)


def _infer_step(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    _known(attributes, OPTIMIZER_FLOPS)
    _lists(attributes, operands)
    return []


def _work_step(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Read everything; write parameters and states, not the gradients."""
    flops = _known(attributes, OPTIMIZER_FLOPS)
    _, tensors = _lists(attributes, operands)
    parameters, states = operands[:tensors], operands[2 * tensors :]
    written = sum(t.nbytes for t in (*parameters, *states))
    elements = sum(t.numel for t in parameters)
    return Work(flops * elements, sum(t.nbytes for t in operands), written)


OPTIMIZER_STEP = OpDef(
    name="optimizer_step",
    arity=(2, None),
    results=0,
    infer=_infer_step,
    work=_work_step,
    attributes={"kind": (str,), "lists": (int,)},
    summary="parameters, gradients, states...: one fused step of an optimizer",
)


def _infer_sparse(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    weight, indices, values = (operand.type for operand in operands[:3])
    if weight.rank != 2 or indices.rank != 1 or values.rank != 2:
        msg = f"expected a table, indices and their rows: {weight}, {indices}, {values}"
        raise VerifyError(msg)
    check_states(attributes.text("kind"), [weight], [o.type for o in operands[3:]])
    return []


def _work_sparse(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Every lookup counts: how many rows differ is the cost model's business."""
    flops = _known(attributes, OPTIMIZER_FLOPS)
    indices, values = operands[1:3]
    row_states = sum(state.nbytes // state.shape[0] for state in operands[3:])
    touched = values.nbytes + indices.numel * row_states
    return Work(flops * values.numel, indices.nbytes + values.nbytes + touched, touched)


SPARSE_OPTIMIZER_STEP = OpDef(
    name="sparse_optimizer_step",
    arity=(3, None),
    results=0,
    infer=_infer_sparse,
    work=_work_sparse,
    attributes={
        "kind": (str,),
        "unique": OPTIONAL_INT,  # how many rows the indices name, where it is known
        "popularity": OPTIONAL_TEXT,
        "kept": OPTIONAL_FLOAT,  # share of the bags that differ from the last
    },
    summary="table, indices, rows, states...: the rows that the indices name, updated",
)

OPS = named(FOREACH, OPTIMIZER_STEP, SPARSE_OPTIMIZER_STEP)
