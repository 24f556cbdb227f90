"""Reductions, scans, softmax and normalisations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import accumulate

from perfc.ir import dims
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, InferRule, OpDef, Trait, named
from perfc.ir.ops import rules
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import BOOL, I64, TensorType


def reduced_axes(attributes: Record, rank: int) -> tuple[int, ...]:
    """Return the axes a `reduce` removes; none given means all from the first on."""
    if attributes.get("axes") is None:
        return tuple(range(attributes.integer("first_axis", 0), rank))
    return tuple(rules.normalize_axis(a, rank) for a in attributes.integers("axes"))


def _infer_reduce(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x = operands[0]
    if len(operands) > 1 and operands[1].elements is None:
        return [_reduced_somewhere(x.type, operands[1].type, attributes)]
    if len(operands) > 1:
        axes = tuple(
            rules.normalize_axis(rules.as_int(a), x.type.rank)
            for a in _axes(operands[1])
        )
    else:
        axes = reduced_axes(attributes, x.type.rank)
    keep = attributes.flag("keepdims")
    shape = tuple(
        1 if axis in axes else dim
        for axis, dim in enumerate(x.type.shape)
        if keep or axis not in axes
    )
    elements: tuple[dims.Dim, ...] | None = None
    if x.elements and dims.product(shape) == 1 and attributes["kind"] in _FOLDS:
        elements = _folded(str(attributes["kind"]), x.elements)
    type_ = rules.converted(attributes, TensorType(x.type.dtype, shape))
    first = Abstract(type_, elements)
    if attributes["kind"] in _WITH_PLACES:
        return [first, Abstract(TensorType(I64, shape))]
    return [first, Abstract(type_)] if attributes["kind"] in _PAIRS else [first]


_WITH_PLACES = ("max", "min")
_PAIRS = ("min_max", "var_mean", "std_mean")
"""Kinds whose kernel writes a second result, for whoever asks."""


def _axes(operand: Abstract) -> Sequence[dims.Dim]:
    return operand.elements or ()


def _reduced_somewhere(
    type_: TensorType, axes: TensorType, attributes: Record
) -> Abstract:
    """Reduce over axes that depend on data: how many they are is known."""
    removed = axes.numel
    if not isinstance(removed, int) or removed > type_.rank:
        msg = f"cannot reduce {type_} over {axes}"
        raise VerifyError(msg)
    rank = type_.rank if attributes.flag("keepdims") else type_.rank - removed
    return Abstract(TensorType(type_.dtype, (rules.UNKNOWN_DIM,) * rank))


def _folded(kind: str, elements: tuple[dims.Dim, ...]) -> tuple[dims.Dim, ...] | None:
    if kind == "sum":
        return (dims.total(elements),)
    if kind == "prod":
        return (dims.product(elements),)
    if kind == "min":
        if any(isinstance(e, dims.Expr) for e in elements):
            return None
        return (min(map(rules.as_int, elements)),)
    return (reduce(dims.maximum, elements),)


_FOLDS = frozenset({"sum", "prod", "max", "min"})
"""What shape arithmetic reduces by."""

REDUCE = OpDef(
    name="reduce",
    arity=(1, 2),
    results=None,
    infer=_infer_reduce,
    work=rules.per_element(1),
    attributes={
        "kind": (str,),
        "axes": rules.OPTIONAL_INTS,
        "first_axis": rules.OPTIONAL_INT,
        "keepdims": rules.OPTIONAL_BOOL,
        **rules.RESULT_DTYPE,
    },
    summary="sum, mean, max (and its place), ... over axes (computed: operand 1)",
)


def _infer_arg(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    type_ = operands[0].type
    axis = rules.normalize_axis(attributes.integer("axis"), type_.rank)
    kept = (1,) if attributes.flag("keepdims") else ()
    shape = (*type_.shape[:axis], *kept, *type_.shape[axis + 1 :])
    return [Abstract(TensorType(I64, shape))]


def _arg(name: str, summary: str) -> OpDef:
    return OpDef(
        name=name,
        arity=(1, 1),
        infer=_infer_arg,
        work=rules.per_element(1),
        attributes={"axis": (int,), "keepdims": rules.OPTIONAL_BOOL},
        summary=summary,
    )


_STEPS: Mapping[str, Callable[[dims.Dim, dims.Dim], dims.Dim]] = {
    "cumsum": lambda so_far, x: so_far + x,
    "cumprod": lambda so_far, x: so_far * x,
}


def _infer_cumulative(name: str) -> InferRule:
    """Fold a list whose every element is known."""
    step = _STEPS[name]

    def infer(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
        x = operands[0]
        if x.type.rank:
            rules.normalize_axis(attributes.integer("axis", -1), x.type.rank)
        plain = not (attributes.flag("exclusive") or attributes.flag("reverse"))
        type_ = rules.converted(attributes, x.type)
        if x.elements is None or x.type.rank != 1 or not plain:
            return [Abstract(type_)]
        return [Abstract(type_, tuple(accumulate(x.elements, step)))]

    return infer


def _cumulative(name: str, summary: str) -> OpDef:
    return OpDef(
        name=name,
        arity=(1, 2),
        infer=_infer_cumulative(name),
        work=rules.per_element(1),
        attributes={
            "axis": rules.OPTIONAL_INT,
            "exclusive": rules.OPTIONAL_BOOL,
            "reverse": rules.OPTIONAL_BOOL,
            **rules.RESULT_DTYPE,
        },
        summary=summary,
    )


ARGMAX = _arg("argmax", "index of the largest element along one axis")
ARGMIN = _arg("argmin", "index of the smallest element along one axis")
CUMSUM = _cumulative("cumsum", "running sums along one axis (computed: operand 1)")
CUMPROD = _cumulative("cumprod", "running products along one axis")


def _along_axis(name: str, flops: int, summary: str) -> OpDef:
    """Define an op of the softmax family: rows in, rows out.

    `flat` joins all axes from the given one on, as ONNX did before opset 13.
    """
    return OpDef(
        name=name,
        arity=(1, 1),
        infer=rules.same_rank_axis,
        work=rules.per_element(flops),
        attributes={"axis": (int,), "flat": rules.OPTIONAL_BOOL, **rules.RESULT_DTYPE},
        traits=frozenset({Trait.KEEPS_SHAPE}),
        summary=summary,
    )


SOFTMAX = _along_axis("softmax", 5, "exponentials normalised along one axis")
LOG_SOFTMAX = _along_axis("log_softmax", 5, "logarithm of the softmax along one axis")
HARDMAX = _along_axis("hardmax", 1, "1 for the largest element along one axis, else 0")


def _infer_batch_norm(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    """In training the running statistics follow the result."""
    x = operands[0].type
    if x.rank < 2:
        msg = f"expected [batch, channels, ...], got {x}"
        raise VerifyError(msg)
    statistics = Abstract(TensorType(operands[3].type.dtype, (x.shape[1],)))
    return [Abstract(x), *[statistics] * 4]


def _work_local_response(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Square, add up so many channels, scale, take a power (4 flops), divide."""
    x = operands[0]
    flops = x.numel * (attributes.integer("size") + 8)
    return Work(flops, x.nbytes, results[0].nbytes)


def _infer_local_response(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x = operands[0].type
    if x.rank < 2:
        msg = f"expected [batch, channels, ...], got {x}"
        raise VerifyError(msg)
    return [Abstract(x)]


LOCAL_RESPONSE_NORM = OpDef(
    name="local_response_norm",
    arity=(1, 1),
    infer=_infer_local_response,
    work=_work_local_response,
    attributes={"size": (int,)},
    traits=frozenset({Trait.KEEPS_SHAPE}),
    summary="division by a power of the squares summed over neighbouring channels",
)
BATCH_NORM = OpDef(
    name="batch_norm",
    arity=(5, 5),
    results=None,
    infer=_infer_batch_norm,
    work=rules.per_element(4),
    attributes={"epsilon": rules.OPTIONAL_FLOAT, "training": rules.OPTIONAL_BOOL},
    traits=frozenset({Trait.KEEPS_SHAPE, Trait.STATISTICS}),
    summary="normalisation per channel with given statistics, or new ones",
)


def _infer_dropout(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x = operands[0].type
    return [Abstract(x), Abstract(TensorType(BOOL, x.shape))]


DROPOUT = OpDef(
    name="dropout",
    arity=(1, 3),
    results=None,
    infer=_infer_dropout,
    work=rules.per_element(3),
    traits=frozenset({Trait.KEEPS_SHAPE, Trait.RANDOM}),
    summary="random elements zeroed, the others scaled; and the mask",
)


def _infer_nll_loss(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    scores, labels = operands[0].type, operands[1].type
    if scores.rank < 2 or labels.rank != scores.rank - 1:
        msg = f"labels {labels} do not fit scores {scores}"
        raise VerifyError(msg)
    shape = labels.shape if attributes.text("reduction") == "none" else ()
    return [Abstract(TensorType(scores.dtype, shape))]


def _work_nll_loss(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    scores, labels, *weights = operands
    picked = labels.numel * (scores.dtype.bits // 8)
    read = picked + labels.nbytes + sum(weight.nbytes for weight in weights)
    return Work(2 * labels.numel, read, results[0].nbytes)


NLL_LOSS = OpDef(
    name="nll_loss",
    arity=(2, 3),
    infer=_infer_nll_loss,
    work=_work_nll_loss,
    attributes={"reduction": (str,)},
    summary="minus the score of each label: sum, mean or none, weighted by class",
)


def _infer_histogram(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    bins = attributes.integer("bins")
    if bins < 1:
        msg = f"{bins} bins"
        raise VerifyError(msg)
    return [Abstract(TensorType(operands[0].type.dtype, (bins,)).checked())]


HISTOGRAM = OpDef(
    name="histogram",
    arity=(1, 1),
    infer=_infer_histogram,
    work=rules.per_element(3, operand=0),
    attributes={"bins": (int,), "limits": rules.OPTIONAL_BOOL},
    summary="how many elements are in each bin; `limits` are given, or the extremes",
)

OPS = named(
    *(REDUCE, ARGMAX, ARGMIN, CUMSUM, CUMPROD, SOFTMAX, LOG_SOFTMAX, HARDMAX),
    *(LOCAL_RESPONSE_NORM, BATCH_NORM, DROPOUT, NLL_LOSS, HISTOGRAM),
)
