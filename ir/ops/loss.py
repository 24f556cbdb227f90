"""Losses of two tensors of one shape, and the gradients of losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops.gradient import first_saved
from perfc.ir.ops.rules import no_work, touch_all
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import TensorType

LOSS_FLOPS: Mapping[str, int] = {
    "mse": 2,
    "l1": 2,
    "smooth_l1": 4,
    "huber": 4,
    "bce": 10,
    "bce_with_logits": 12,
    "soft_margin": 9,
    "multi_margin": 3,
    "multilabel_margin": 3,
}
"""Kinds, and flops for each element; the sum over them is one more."""

LOSSES_OF_ROWS = frozenset({"multi_margin", "multilabel_margin"})
"""Losses of a row of scores each: the target has labels."""

REDUCTIONS = ("mean", "sum", "none")


def _checked(attributes: Record) -> tuple[str, str]:
    kind, reduction = attributes.text("kind"), attributes.text("reduction")
    if kind not in LOSS_FLOPS or reduction not in REDUCTIONS:
        msg = (
            f"loss {kind!r}, reduced by {reduction!r}: expected one of "
            f"{', '.join(LOSS_FLOPS)}, by {', '.join(REDUCTIONS)}"
        )
        raise VerifyError(msg)
    return kind, reduction


def _infer_loss(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    x = operands[0].type
    kind, reduction = _checked(attributes)
    shape = x.shape[:-1] if kind in LOSSES_OF_ROWS else x.shape
    return [Abstract(TensorType(x.dtype, shape if reduction == "none" else ()))]


def _infer_loss_backward(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    _checked(attributes)
    return first_saved(attributes, operands)


def _work_loss(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    kind, reduction = _checked(attributes)
    flops = LOSS_FLOPS[kind] + (reduction != "none")
    moved = touch_all(attributes, operands, results)
    return Work(flops * operands[0].numel, moved.bytes_read, moved.bytes_written)


def _work_loss_backward(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    kind, _ = _checked(attributes)
    moved = touch_all(attributes, operands, results)
    flops = LOSS_FLOPS[kind] * operands[1].numel
    return Work(flops, moved.bytes_read, moved.bytes_written)


def _work_nll_backward(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    grad, _, labels, *weights = operands
    read = grad.nbytes + labels.nbytes + sum(weight.nbytes for weight in weights)
    return Work(labels.numel, read, results[0].nbytes)


_ATTRIBUTES = {"kind": (str,), "reduction": (str,)}

LOSS = OpDef(
    name="loss",
    arity=(2, 4),
    infer=_infer_loss,
    work=_work_loss,
    attributes=_ATTRIBUTES,
    summary="mse, l1, bce, ... of x and a target, weighted; sum, mean or none",
)
LOSS_BACKWARD = OpDef(
    name="loss_backward",
    arity=(3, 5),
    infer=_infer_loss_backward,
    work=_work_loss_backward,
    attributes=_ATTRIBUTES,
    summary="gradient of loss: of its result, x, the target, weights",
)
NLL_LOSS_BACKWARD = OpDef(
    name="nll_loss_backward",
    arity=(3, 4),
    infer=first_saved,
    work=_work_nll_backward,
    attributes={"reduction": (str,)},
    summary="gradient of nll_loss: of its result, the scores, labels, class weights",
)
SPLIT_CROSS_ENTROPY = OpDef(
    name="split_cross_entropy",
    arity=(6, 6),
    infer=first_saved,
    work=no_work,
    view=1,
    summary="scores in parts, their losses, softmax, rows, labels, mask: the losses",
)

OPS = named(LOSS, LOSS_BACKWARD, NLL_LOSS_BACKWARD, SPLIT_CROSS_ENTROPY)
