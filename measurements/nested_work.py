"""Compulsory work of measured rows whose parameters are lists: one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from perfc.costmodels import distinct_rows, parse_popularity
from perfc.ir import OPTIMIZER_STATES, Record, Work
from perfc.ir.ops.optimizer import OPTIMIZER_FLOPS
from perfc.measurements.schema import MeasurementError

_PHASES = ("forward", "backward")
_INDEX_BYTES = 8
_AT_PLACES = frozenset({"index", "gather_nd"})
"""Kinds of `gather` whose last axis of indices numbers several axes at once."""


def _work(flops: float, read: float, written: float) -> Work:
    return Work(round(flops), math.ceil(read), math.ceil(written))


def _phase(params: Record) -> str:
    phase = params.text("phase", "forward")
    if phase not in _PHASES:
        msg = f"phase is {phase!r}, expected one of {', '.join(_PHASES)}"
        raise MeasurementError(msg)
    return phase


def _embedding_bag(params: Record, size: float, dtype: str) -> Work:
    batch = params.integer("batch")
    work = Work(0, 0, 0)
    parse_popularity(params.text("popularity", ""))
    for table in params.records("tables"):
        parse_popularity(table.text("popularity", ""))
        rows, dim = table.integer("rows"), table.integer("dim")
        lookups = batch * table.integer("pooling")
        pooled, listed = size * batch * dim, _INDEX_BYTES * (lookups + batch + 1)
        if _phase(params) == "forward":
            work += _work(lookups * dim, size * lookups * dim + listed, pooled)
        else:
            work += _update(params, size, (rows, dim, lookups), pooled + listed)
    return work


def _update(
    params: Record, size: float, table: tuple[int, int, int], read: float
) -> Work:
    """Rows that are touched are read and written, with their states.

    Without an optimizer the gradient of the whole table is written.
    """
    rows, dim, lookups = table
    kind = params.text("optimizer", "")
    if not kind:
        return _work(lookups * dim, read, size * rows * dim)
    sizes = (np.array([float(number)]) for number in (rows, lookups))
    touched = float(distinct_rows(*sizes)[0])
    states = OPTIMIZER_STATES[kind]
    of_row = dim * (1 + states.count("element")) + states.count("row")
    moved = size * touched * of_row
    flops = lookups * dim + OPTIMIZER_FLOPS[kind] * touched * dim
    return _work(flops, read + moved, moved)


def _gather(params: Record, size: float, dtype: str) -> Work:
    """Rows that `indices` name, along `axis`; of some kinds places of several axes."""
    shape, indices = params.integers("shape"), params.integers("indices")
    axis, kind = params.integer("axis", 0), params.text("kind", "gather")
    if not -len(shape) <= axis < len(shape):
        msg = f"axis is {axis}, expected one of the {len(shape)} of shape"
        raise MeasurementError(msg)
    axis %= len(shape)
    count = math.prod(indices)
    axes = 1  # that one index numbers
    if len(indices) > 1 and kind in _AT_PLACES:
        *_, axes = indices
    elements = count // max(axes, 1)
    if kind != "gather_elements":
        elements *= math.prod(shape[:axis]) * math.prod(shape[axis + axes :])
    return _work(0, size * elements + _INDEX_BYTES * count, size * elements)


def _concat(params: Record, size: float, dtype: str) -> Work:
    shapes = params["shapes"]
    if not isinstance(shapes, tuple):
        msg = "shapes is no list"
        raise MeasurementError(msg)
    listed = Record({str(i): shape for i, shape in enumerate(shapes)})
    elements = sum(math.prod(listed.integers(name)) for name in listed)
    return _work(0, size * elements, size * elements)


def _transpose(params: Record, size: float, dtype: str) -> Work:
    elements = math.prod(params.integers("shape"))
    return _work(0, size * elements, size * elements)


def _optimizer_step(params: Record, size: float, dtype: str) -> Work:
    elements, kind = params.integer("elements"), params.text("kind")
    states = len(OPTIMIZER_STATES.get(kind, ("element", "element")))
    read, written = 2 + states, 1 + states
    flops = OPTIMIZER_FLOPS[kind] * elements
    return _work(flops, size * read * elements, size * written * elements)


NESTED_WORK: Mapping[str, Callable[[Record, float, str], Work]] = {
    "embedding_bag": _embedding_bag,
    "gather": _gather,
    "concat": _concat,
    "transpose": _transpose,
    "optimizer_step": _optimizer_step,
}
"""Functions that count the work of a row, by op."""
