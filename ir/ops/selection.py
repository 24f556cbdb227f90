"""Selecting elements: how many are left often depends on data."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfc.ir.dims import Dim, Expr
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops import rules
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import I64, TensorType


def _infer_topk(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    type_, count = operands[0].type, rules.only_element(operands[1])
    axis = rules.normalize_axis(attributes.integer("axis"), type_.rank)
    kept = rules.UNKNOWN_DIM if count is None else count
    size = type_.shape[axis]
    if isinstance(kept, int) and isinstance(size, int) and not 0 <= kept <= size:
        msg = f"cannot take {kept} of {size} elements"
        raise VerifyError(msg)
    shape = (*type_.shape[:axis], kept, *type_.shape[axis + 1 :])
    return [Abstract(TensorType(dtype, shape)) for dtype in (type_.dtype, I64)]


TOPK = OpDef(
    name="topk",
    arity=(2, 2),
    results=None,
    infer=_infer_topk,
    work=rules.per_element(4),  # a radix select passes over 32-bit keys four times
    attributes={"axis": (int,)},
    summary="x, k: the k largest (or smallest) along one axis, and their places",
)


def _infer_sort(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    type_ = operands[0].type
    rules.normalize_axis(attributes.integer("axis"), max(type_.rank, 1))
    return [Abstract(type_), Abstract(TensorType(I64, type_.shape))]


SORT = OpDef(
    name="sort",
    arity=(1, 1),
    results=None,
    infer=_infer_sort,
    work=rules.per_element(8),  # a radix sort passes over 32-bit keys and places
    attributes={"axis": (int,)},
    summary="x sorted along one axis, and the places it was at",
)


def _infer_nonzero(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, axes = operands[0], rules.all_of(operands[0])
    rank = x.type.rank
    known = x.elements is not None and not any(isinstance(e, Expr) for e in x.elements)
    if x.elements is None or axes is None or not known:
        return [Abstract(TensorType(I64, (rank, rules.UNKNOWN_DIM)))]
    flat = [i for i, element in enumerate(x.elements) if element]
    places: list[Dim] = []
    for axis, indices in enumerate(axes):
        step = math.prod(map(len, axes[axis + 1 :]))
        places += [i // step % len(indices) for i in flat]
    return [Abstract(TensorType(I64, (rank, len(flat))), tuple(places))]


NONZERO = OpDef(
    name="nonzero",
    arity=(1, 1),
    infer=_infer_nonzero,
    work=rules.touch_all,
    summary="the places of the elements that are not 0",
)


def _infer_compress(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    type_, condition = operands[0].type, operands[1].elements
    kept: Dim = rules.UNKNOWN_DIM
    if condition is not None and not any(isinstance(c, Expr) for c in condition):
        kept = sum(bool(c) for c in condition)
    if attributes.get("axis") is None:
        return [Abstract(TensorType(type_.dtype, (kept,)))]
    axis = rules.normalize_axis(attributes.integer("axis"), type_.rank)
    shape = (*type_.shape[:axis], kept, *type_.shape[axis + 1 :])
    return [Abstract(TensorType(type_.dtype, shape))]


COMPRESS = OpDef(
    name="compress",
    arity=(2, 2),
    infer=_infer_compress,
    work=rules.touch_all,
    attributes={"axis": rules.OPTIONAL_INT},
    summary="x, condition: the slices along one axis for which the condition holds",
)


def _infer_unique(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    """Unique slices, where each is first, which each slice is, how often each is."""
    type_ = operands[0].type
    shape: tuple[Dim, ...] = (rules.UNKNOWN_DIM,)
    slices: Dim = type_.numel
    if attributes.get("axis") is not None:
        axis = rules.normalize_axis(attributes.integer("axis"), type_.rank)
        slices = type_.shape[axis]
        shape = (*type_.shape[:axis], rules.UNKNOWN_DIM, *type_.shape[axis + 1 :])
    found = Abstract(TensorType(I64, (rules.UNKNOWN_DIM,)))
    which = Abstract(TensorType(I64, (slices,)))
    return [Abstract(TensorType(type_.dtype, shape)), found, which, found]


UNIQUE = OpDef(
    name="unique",
    arity=(1, 1),
    results=None,
    infer=_infer_unique,
    work=rules.per_element(4),  # a radix sort passes over 32-bit keys four times
    attributes={"axis": rules.OPTIONAL_INT},
    summary="the different elements, or slices along one axis, and where they are",
)


def _work_suppression(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Compare all pairs of boxes of each class: 12 flops for an overlap."""
    boxes, scores = operands[:2]
    moved = rules.touch_all(attributes, operands, results)
    pairs = scores.numel * boxes.shape[1] // 2
    return Work(12 * pairs, moved.bytes_read, moved.bytes_written)


def _infer_suppression(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    boxes, scores = operands[0].type, operands[1].type
    if boxes.rank != 3 or scores.rank != 3:
        msg = f"expected boxes and scores of images, got {boxes} and {scores}"
        raise VerifyError(msg)
    return [Abstract(TensorType(I64, (rules.UNKNOWN_DIM, 3)))]


NON_MAX_SUPPRESSION = OpDef(
    name="non_max_suppression",
    arity=(2, 5),
    infer=_infer_suppression,
    work=_work_suppression,
    summary="boxes, scores: (image, class, box) of boxes that overlap no better one",
)


def _infer_one_hot(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    indices, depth, values = operands
    axis = rules.normalize_axis(attributes.integer("axis", -1), indices.type.rank + 1)
    known = rules.only_element(depth)
    classes = rules.UNKNOWN_DIM if known is None else known
    shape = (*indices.type.shape[:axis], classes, *indices.type.shape[axis:])
    return [Abstract(TensorType(values.type.dtype, shape))]


ONE_HOT = OpDef(
    name="one_hot",
    arity=(3, 3),
    infer=_infer_one_hot,
    work=rules.touch_all,
    attributes={"axis": rules.OPTIONAL_INT},
    summary="indices, classes, [off, on]: a new axis that is on at each index",
)

OPS = named(TOPK, SORT, NONZERO, COMPRESS, UNIQUE, NON_MAX_SUPPRESSION, ONE_HOT)
