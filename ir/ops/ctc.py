"""Connectionist temporal classification: the loss of all alignments, its gradient.

Graves et al., "Connectionist temporal classification: labelling unsegmented sequence
data with recurrent neural networks", ICML 2006. Between the labels of a target, in
front of them and behind stands a blank: twice the labels and one more are walked along.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfc.ir.dims import Dim, product
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops.rules import OPTIONAL_BOOL, touch_all
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import TensorType

_SCORES = 3
"""Axes of the log probabilities: steps, batch, labels."""

_WALK_FLOPS = 21
"""Flops of a sum over three ways.

They are 3 differences, 3 exponentials of 3, 2 sums, a logarithm of 3, 2 more sums, 2
maxima.
"""

_COLLECT_FLOPS = 8
"""Flops of a way that ends at a label: a sum, an exponential and a logarithm, a sum."""

_PROBABILITY_FLOPS = 9
"""Flops of a gradient element: 2 exponentials of 3, 2 differences and a product."""


def _infer_ctc_loss(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    scores = operands[0].type
    longest = attributes.integer("longest")
    if scores.rank != _SCORES or longest < 0:
        msg = f"expected [steps, batch, labels], got {scores} and {longest} labels"
        raise VerifyError(msg)
    steps, batch, _ = scores.shape
    sums: tuple[Dim, ...] = (batch, steps, 2 * longest + 1)
    losses: tuple[Dim, ...] = (batch,)
    made = (TensorType(scores.dtype, shape) for shape in (losses, sums))
    return [Abstract(type_.checked()) for type_ in made]


def _work_ctc_loss(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Every sum along the target, and the log probabilities of its labels."""
    scores, *others = operands
    steps, batch, labels = scores.shape
    walked = 2 * attributes.integer("longest") + 1
    few = isinstance(labels, int) and labels < walked
    picked = scores.nbytes if few else scores.nbytes // labels * walked
    read = picked + sum(other.nbytes for other in others)
    written = sum(result.nbytes for result in results)
    flops = _WALK_FLOPS * product((steps, batch, walked))
    return Work(flops, read, written)


def _infer_backward(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    """Give the gradient the type of the log probabilities."""
    scores, sums = operands[1].type, operands[4].type
    if scores.rank != _SCORES or sums.rank != _SCORES:
        msg = (
            "expected log probabilities [steps, batch, labels] as operand 1, and sums "
            f"[batch, steps, ways] as operand 4, got {scores} and {sums}"
        )
        raise VerifyError(msg)
    return [Abstract(scores)]


def _work_backward(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Walk back, and add up what the ways through each label weigh."""
    scores, sums = operands[1], operands[4]
    moved = touch_all(attributes, operands, results)
    flops = (_WALK_FLOPS + _COLLECT_FLOPS) * sums.numel
    flops = flops + _PROBABILITY_FLOPS * scores.numel
    return Work(flops, moved.bytes_read, moved.bytes_written)


CTC_LOSS = OpDef(
    name="ctc_loss",
    arity=(2, 4),
    results=None,
    infer=_infer_ctc_loss,
    work=_work_ctc_loss,
    attributes={"longest": (int,), "zero_infinity": OPTIONAL_BOOL},
    summary="loss of log probabilities, labels, lengths; and its sums for backward",
)
CTC_LOSS_BACKWARD = OpDef(
    name="ctc_loss_backward",
    arity=(5, 7),
    infer=_infer_backward,
    work=_work_backward,
    attributes={"zero_infinity": OPTIONAL_BOOL},
    summary="gradient of ctc_loss: of its result, its operands, the loss, the sums",
)

OPS = named(CTC_LOSS, CTC_LOSS_BACKWARD)
