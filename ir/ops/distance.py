"""Distances of all pairs of vectors, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfc.ir.dims import Dim
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops.gradient import first_saved
from perfc.ir.ops.rules import OPTIONAL_FLOAT, require_equal, touch_all
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import TensorType

_PAIR = 2
_PLAIN_ORDERS = (0.0, 1.0, 2.0, float("inf"))
_PLAIN_FLOPS = 3
"""Flops of an element of a pair: the difference, its size or square, the sum."""

_POWER_FLOPS = 4
"""More of them for any other order: as `pow`."""

_GRADIENT_FLOPS = 4
"""Flops of an element of a pair: difference, times gradient, over distance, the sum."""


def _infer_distances(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, y = operands[0].type, operands[-1].type
    if x.rank < _PAIR or y.rank != x.rank:
        msg = f"expected vectors in rows, got {x} and {y}"
        raise VerifyError(msg)
    require_equal("columns", x.shape[-1], y.shape[-1])
    if len(operands) == _PAIR:
        shape: tuple[Dim, ...] = (*x.shape[:-1], y.shape[-2])
        return [Abstract(TensorType(x.dtype, shape))]
    if x.rank != _PAIR:
        msg = f"expected one set of vectors in rows, got {x}"
        raise VerifyError(msg)
    rows = x.shape[0]
    pairs: tuple[Dim, ...] = (rows * (rows - 1) // 2,)
    return [Abstract(TensorType(x.dtype, pairs))]


def _of_power(attributes: Record) -> bool:
    order = attributes.get("order")
    return order is not None and order not in _PLAIN_ORDERS


def _work_distances(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    elements = results[0].numel * operands[0].shape[-1]
    flops = (_PLAIN_FLOPS + _POWER_FLOPS * _of_power(attributes)) * elements
    return attrs.evolve(touch_all(attributes, operands, results), flops=flops)


def _infer_backward(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    for operand in operands[1:-1]:  # one set of vectors, or two; then the distances
        if operand.type.rank < _PAIR:
            msg = f"expected vectors in rows, got {operand.type}"
            raise VerifyError(msg)
    return first_saved(attributes, operands)


def _work_backward(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    elements = operands[0].numel * operands[1].shape[-1]
    flops = (_GRADIENT_FLOPS + _POWER_FLOPS * _of_power(attributes)) * elements
    return attrs.evolve(touch_all(attributes, operands, results), flops=flops)


_ATTRIBUTES = {"order": OPTIONAL_FLOAT}  # 2 if absent

DISTANCES = OpDef(
    name="distances",
    arity=(1, 2),
    infer=_infer_distances,
    work=_work_distances,
    attributes=_ATTRIBUTES,
    summary="distances of all rows of x from each other, or from all rows of y",
)
DISTANCES_BACKWARD = OpDef(
    name="distances_backward",
    arity=(3, 4),
    infer=_infer_backward,
    work=_work_backward,
    attributes=_ATTRIBUTES,
    summary="gradient of distances: of its result, x, y if there is one, the result",
)

OPS = named(DISTANCES, DISTANCES_BACKWARD)
