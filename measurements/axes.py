"""Axes of measured rows, counted from the first, however a row counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

Params = Mapping[str, Any]
"""A JSON object, parsed."""


def counted_from_first(params: Params) -> Params:
    """Return parameters whose axis, of tensors that are joined, is not below 0.

    One axis is one number: rows of -1 and of 1 are of the same kernel. What cannot be
    counted stays, to be refused by whoever reads it.
    """
    axis, shapes = params.get("axis"), params.get("shapes")
    if not isinstance(axis, int) or axis >= 0 or not _is_list(shapes):
        return params
    first = cast("Sequence[object]", shapes)[0]
    rank = len(cast("Sequence[object]", first)) if _is_list(first) else 0
    return {**params, "axis": axis + rank} if axis + rank >= 0 else params


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple)) and bool(cast("Sequence[object]", value))
