"""Gradients of layers: norms, convolutions, pooling, attention, recurrence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfc.ir.dims import product
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, InferRule, OpDef, named
from perfc.ir.ops import rules
from perfc.ir.ops.attention import ATTENTION_RANKS
from perfc.ir.ops.gradient import (
    GradientType,
    infer_wanted,
    like,
    vector_like,
    wanted,
)
from perfc.ir.ops.recurrent import RECURRENT_GATES
from perfc.ir.ops.window import WINDOW
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import TensorType

WANTS = {"wants": (tuple,)}

_MATRIX = 2

_NORM: Mapping[str, GradientType] = {"x": like(1), "weight": like(2), "bias": like(2)}


def _of_rank(least: int, operands: int, rule: InferRule) -> InferRule:
    """Return *rule* for first operands of so many axes at least."""

    def infer(
        attributes: Record, found: Sequence[Abstract]
    ) -> Sequence[Abstract | None]:
        for operand in found[:operands]:
            if operand.type.rank < least:
                msg = f"expected tensors of {least} axes at least, got {operand.type}"
                raise VerifyError(msg)
        return rule(attributes, found)

    return infer


def _norm(
    name: str, flops: int, least: int = 1, **attributes: tuple[type, ...]
) -> OpDef:
    return OpDef(
        name=f"{name}_backward",
        arity=(2, 3),
        results=None,
        infer=_of_rank(least, 2, infer_wanted(_NORM)),
        work=rules.per_element(flops, operand=1),
        attributes={**WANTS, **attributes},
        summary=f"gradients of {name}: of its result, the input, and the scale",
    )


_CONV: Mapping[str, GradientType] = {
    "x": like(1),
    "weight": like(2),
    "bias": vector_like(0, 1),
}


def _work_conv(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Return the work: each GEMM takes the flops of forward; the bias is a sum."""
    grad, x, weight = operands[:3]
    images = x if attributes.flag("transposed") else grad
    gemms = sum(name != "bias" for name in wanted(attributes))
    flops = 2 * gemms * images.numel * product(weight.shape[1:])
    if "bias" in wanted(attributes):
        flops = flops + grad.numel
    moved = rules.touch_all(attributes, operands, results)
    return Work(flops, moved.bytes_read, moved.bytes_written)


CONV_BACKWARD = OpDef(
    name="conv_backward",
    arity=(3, 3),
    results=None,
    infer=_of_rank(3, 3, infer_wanted(_CONV)),
    work=_work_conv,
    attributes={
        **WANTS,
        **WINDOW,
        "groups": rules.OPTIONAL_INT,
        "transposed": rules.OPTIONAL_BOOL,  # of conv_transpose
        "output_padding": rules.OPTIONAL_INTS,
    },
    summary="gradients of a convolution: of its result, the images, and the weight",
)


_WANTED_OF_TBC = infer_wanted(
    {"x": like(1), "weight": like(2), "bias": vector_like(0, 2)}
)


def _infer_conv_tbc(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract | None]:
    types = [operand.type for operand in operands]
    if any(type_.rank != 3 for type_ in types):
        msg = f"expected tensors of three axes, got {', '.join(map(str, types))}"
        raise VerifyError(msg)
    return _WANTED_OF_TBC(attributes, operands)


def _work_conv_tbc(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Return the work: each GEMM takes the flops of forward; the bias is a sum."""
    grad, _, weight = operands
    gemms = sum(name != "bias" for name in wanted(attributes))
    flops = 2 * gemms * grad.numel * weight.shape[0] * weight.shape[1]
    if "bias" in wanted(attributes):
        flops = flops + grad.numel
    moved = rules.touch_all(attributes, operands, results)
    return Work(flops, moved.bytes_read, moved.bytes_written)


CONV_TBC_BACKWARD = OpDef(
    name="conv_tbc_backward",
    arity=(3, 3),
    results=None,
    infer=_infer_conv_tbc,
    work=_work_conv_tbc,
    attributes={**WANTS, "padding": rules.OPTIONAL_INT},
    summary="gradients of conv_tbc: of its result, the steps, and the weight",
)


def _work_pool(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """An average goes to every element of its window, a maximum to one."""
    grad = operands[0]
    size = product(attributes.integers("window", (1,)))
    flops = grad.numel * (1 if attributes.text("kind") == "max" else size)
    read = grad.nbytes + sum(operand.nbytes for operand in operands[2:])
    return Work(flops, read, results[0].nbytes)


def _infer_pool(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    return [Abstract(operands[1].type)]


POOL_BACKWARD = OpDef(
    name="pool_backward",
    arity=(2, 3),
    infer=_infer_pool,
    work=_work_pool,
    attributes={
        **WINDOW,
        "kind": (str,),
        "window": (tuple, type(None)),  # the whole image if absent
        "ceil_mode": rules.OPTIONAL_BOOL,
    },
    summary="gradient of pool: of its result, the images, and the places of maxima",
)


_infer_heads = infer_wanted({"q": like(1), "k": like(2), "v": like(3), "mask": like(5)})


def _infer_attention(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract | None]:
    for operand in operands[:4]:
        if operand.type.rank not in ATTENTION_RANKS:
            msg = f"expected [batch, heads, length, head_dim], got {operand.type}"
            raise VerifyError(msg)
    return _infer_heads(attributes, operands)


def _work_attention(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Five GEMMs where forward has two: the scores are computed again.

    As `torch.utils.flop_counter` counts the flash and memory-efficient kernels.
    """
    grad, q, k, v = operands[:4]
    square = q.numel * k.shape[-2]
    flops = 2 * (3 * square + 2 * grad.numel * v.shape[-2])
    moved = rules.touch_all(attributes, operands, results)
    return Work(flops, moved.bytes_read, moved.bytes_written)


ATTENTION_BACKWARD = OpDef(
    name="attention_backward",
    arity=(5, None),
    results=None,
    infer=_infer_attention,
    work=_work_attention,
    attributes={
        **WANTS,
        "causal": rules.OPTIONAL_BOOL,
        "scale": rules.OPTIONAL_FLOAT,
        "mask_hides": rules.OPTIONAL_BOOL,
    },
    summary="gradients of attention: of its result, q, k, v, the result, the masks",
)


def _projection(attributes: Record, operands: Sequence[TensorType]) -> TensorType:
    """Return the type of the weight that projects an LSTM, from its recurrence."""
    if operands[3].rank < _MATRIX:
        msg = f"expected a recurrence [..., gates, state], got {operands[3]}"
        raise VerifyError(msg)
    *directions, gates, state = operands[3].shape
    hidden = gates // RECURRENT_GATES["lstm"]
    return TensorType(operands[3].dtype, (*directions, state, hidden))


def _work_recurrent(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Twice the GEMMs of forward: for the data, and for the weights."""
    x, weight, recurrence = operands[1:4]
    kind = attributes.text("kind")
    if kind not in RECURRENT_GATES:
        msg = f"{kind!r} is none of {', '.join(RECURRENT_GATES)}"
        raise VerifyError(msg)
    rows = product(x.shape[:2])
    weights = weight.numel + recurrence.numel
    if attributes.flag("projected"):
        weights = weights + _projection(attributes, operands).numel
    flops = 4 * rows * weights
    moved = rules.touch_all(attributes, operands, results)
    return Work(flops, moved.bytes_read, moved.bytes_written)


RECURRENT_BACKWARD = OpDef(
    name="recurrent_backward",
    arity=(4, 8),
    results=None,
    infer=infer_wanted(
        {
            "x": like(1),
            "weight": like(2),
            "recurrence": like(3),
            "bias": like(4),
            "projection": _projection,
        }
    ),
    work=_work_recurrent,
    attributes={
        **WANTS,
        "kind": (str,),
        "batch_first": rules.OPTIONAL_BOOL,
        "projected": rules.OPTIONAL_BOOL,
    },
    summary="gradients of recurrent: of its result, x, weights, the bias, reserve",
)

_weight_norm_gradients = infer_wanted({"x": like(1), "weight": like(2)})


def _infer_weight_norm(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract | None]:
    rules.normalize_axis(attributes.integer("axis"), operands[1].type.rank)
    return _weight_norm_gradients(attributes, operands)


WEIGHT_NORM_BACKWARD = OpDef(
    name="weight_norm_backward",
    arity=(4, 4),
    results=None,
    infer=_infer_weight_norm,
    work=rules.per_element(6, operand=1),
    attributes={**WANTS, "axis": (int,)},
    summary="gradients of weight_norm: of its result, x, the norms given, its own",
)

OPS = named(
    _norm("layer_norm", 12, axis=(int,)),
    _norm("rms_norm", 9, axis=(int,)),
    _norm("group_norm", 12, 2, groups=rules.OPTIONAL_INT),
    _norm("batch_norm", 10, 2, training=rules.OPTIONAL_BOOL),
    *(
        CONV_BACKWARD,
        CONV_TBC_BACKWARD,
        POOL_BACKWARD,
        ATTENTION_BACKWARD,
        RECURRENT_BACKWARD,
    ),
    WEIGHT_NORM_BACKWARD,
)
