"""Reductions, softmax and normalisations."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.ir.dims import Dim, product
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, WorkRule
from perfc.ir.ops.rules import (
    OPTIONAL_BOOL,
    OPTIONAL_INTS,
    first_operand,
    normalize_axis,
    same_rank_axis,
    touch_all,
)
from perfc.ir.record import Record
from perfc.ir.types import TensorType


def reduced_axes(attributes: Record, rank: int) -> tuple[int, ...]:
    """Return the axes a `reduce` removes; none given means all of them."""
    if attributes.get("axes") is None:
        return tuple(range(rank))
    return tuple(normalize_axis(a, rank) for a in attributes.integers("axes"))


def _infer_reduce(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    type_ = operands[0].type
    axes = reduced_axes(attributes, type_.rank)
    keep = attributes.flag("keepdims")
    shape = tuple(
        1 if axis in axes else dim
        for axis, dim in enumerate(type_.shape)
        if keep or axis not in axes
    )
    elements: tuple[Dim, ...] | None = None
    if operands[0].elements is not None and not shape and attributes["kind"] == "prod":
        elements = (product(operands[0].elements),)
    return [Abstract(TensorType(type_.dtype, shape), elements)]


def _per_element(flops: int) -> WorkRule:
    def work(
        attributes: Record,
        operands: Sequence[TensorType],
        results: Sequence[TensorType],
    ) -> Work:
        moved = touch_all(attributes, operands, results)
        return Work(flops * operands[0].numel, moved.bytes_read, moved.bytes_written)

    return work


REDUCE = OpDef(
    name="reduce",
    arity=(1, 1),
    infer=_infer_reduce,
    work=_per_element(1),
    attributes={"kind": (str,), "axes": OPTIONAL_INTS, "keepdims": OPTIONAL_BOOL},
    summary="sum, mean, max, min or prod over axes",
)
SOFTMAX = OpDef(
    name="softmax",
    arity=(1, 1),
    infer=same_rank_axis,
    work=_per_element(5),
    attributes={"axis": (int,)},
    summary="exponentials normalised along one axis",
)
LAYER_NORM = OpDef(
    name="layer_norm",
    arity=(1, 3),
    infer=same_rank_axis,
    work=_per_element(8),
    attributes={"axis": (int,), "epsilon": (float, type(None))},
    summary="normalisation over the trailing axes, with scale and bias",
)
BATCH_NORM = OpDef(
    name="batch_norm",
    arity=(5, 5),
    infer=first_operand,
    work=_per_element(4),
    attributes={"epsilon": (float, type(None))},
    summary="normalisation per channel with given statistics",
)

OPS = (REDUCE, SOFTMAX, LAYER_NORM, BATCH_NORM)
