"""What calls move that are several kernels, or whose sizes are not those of rows.

They are measured in the suite of models' kernels only. As everywhere the work is
compulsory: operands are read once, results written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from perfc.ir import Record, Work

_INDEX = 8
"""Bytes of an index."""


def pair_of(params: Record, name: str) -> tuple[int, int]:
    """Return a size of both axes, which one number says if they are alike."""
    if isinstance(params[name], tuple):
        first, second = params.integers(name)
        return first, second
    both = params.integer(name)
    return both, both


def _foreach(params: Record, size: int) -> Work:
    elements, lists = params.integer("elements"), params.integer("lists")
    return Work(elements, size * lists * elements, size * elements)


def _pool(params: Record, size: int) -> Work:
    planes, side, out = map(params.integer, ("planes", "size", "out"))
    image, pooled = size * planes * side**2, size * planes * out**2
    if params.text("kind") == "max":
        pooled += _INDEX * planes * out**2  # where the largest were
    read, written = image, pooled
    if params.get("phase") == "backward":
        read, written = pooled, image
    return Work(planes * (out * params.integer("window")) ** 2, read, written)


def _nll_loss(params: Record, size: int) -> Work:
    rows, cols = params.integer("rows"), params.integer("cols")
    if params.get("phase") == "backward":
        return Work(0, _INDEX * rows, size * rows * cols)
    return Work(rows, (_INDEX + size) * rows, size)


def _embedding_backward(params: Record, size: int) -> Work:
    rows, dim, lookups = map(params.integer, ("rows", "dim", "lookups"))
    read = lookups * (size * dim + _INDEX)
    return Work(lookups * dim, read, size * rows * dim)


def _index_put(params: Record, size: int) -> Work:
    moved = size * params.integer("outer") * params.integer("indices")
    return Work(params.integer("outer") * params.integer("indices"), 2 * moved, moved)


def _coalesce(params: Record, size: int) -> Work:
    count, dim, touched = map(params.integer, ("lookups", "dim", "distinct"))
    row = size * dim + _INDEX
    return Work(count * dim, count * row, touched * row)


def work_of_call(op: str, params: Record, size: int) -> Work | None:
    """Return the work of a call that measured rows have no sizes of, else nothing.

    Args:
        op: Of the case.
        params: Its sizes.
        size: Bytes of an element.

    """
    if op == "conv2d" and isinstance(params["kernel"], tuple):
        # The work of any window, square or not; measured rows have square ones.
        windows, paddings = pair_of(params, "kernel"), pair_of(params, "padding")
        n, c_in, c_out, side, stride = map(
            params.integer, ("n", "c_in", "c_out", "size", "stride")
        )
        outs = [
            (side + 2 * padding - window) // stride + 1
            for window, padding in zip(windows, paddings, strict=True)
        ]
        depth = c_in // params.integer("groups", 1) * math.prod(windows)
        pixels = n * math.prod(outs)
        tensors = {
            "forward": pixels * c_out,
            "backward_data": n * c_in * side**2,
            "backward_weight": depth * c_out,
        }
        written = tensors[params.text("phase", "forward")]
        read = sum(tensors.values()) - written
        return Work(2 * pixels * depth * c_out, size * read, size * written)
    return _WORK[op](params, size) if op in _WORK else None


_WORK: Mapping[str, Callable[[Record, int], Work]] = MappingProxyType(
    {
        "foreach": _foreach,
        "pool": _pool,
        "nll_loss": _nll_loss,
        "embedding_backward": _embedding_backward,
        "index_put": _index_put,
        "coalesce": _coalesce,
    }
)
"""Functions that count an op's work from its sizes and an element's bytes, by op."""
