"""Attention, and the rotation of positions that precedes it."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfc.ir.dims import Dim
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops.rules import (
    OPTIONAL_BOOL,
    OPTIONAL_FLOAT,
    OPTIONAL_INT,
    OPTIONAL_TEXTS,
    broadcast,
    require_equal,
    touch_all,
)
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import TensorType

ATTENTION_RANKS = (3, 4)
"""Ranks of queries, keys and values: without and with an axis of heads."""


def _infer_attention(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    """Three axes are [batch, length, head_dim]: one head."""
    q, k, v, *masks = (operand.type for operand in operands)
    if not q.rank == k.rank == v.rank or q.rank not in ATTENTION_RANKS:
        msg = f"expected [batch, heads, length, head_dim] three times: {q}, {k}, {v}"
        raise VerifyError(msg)
    require_equal("batches of q and k", q.shape[0], k.shape[0])
    require_equal("head_dim of q and k", q.shape[-1], k.shape[-1])
    require_equal("lengths of k and v", k.shape[-2], v.shape[-2])
    require_equal("batches of k and v", k.shape[0], v.shape[0])
    if q.rank == max(ATTENTION_RANKS):
        require_equal("heads of k and v", k.shape[1], v.shape[1])
        _check_groups(q.shape[1], k.shape[1])
    scores = (*q.shape[:-1], k.shape[-2])
    for mask in masks:
        if len(broadcast([scores, full_mask(mask.shape, k.shape[-2])])) != q.rank:
            msg = f"mask {mask} has more axes than the scores"
            raise VerifyError(msg)
    return [Abstract(attrs.evolve(q, shape=(*q.shape[:-1], v.shape[-1])))]


def full_mask(shape: tuple[Dim, ...], keys: Dim) -> tuple[Dim, ...]:
    """Return the shape of a mask that says something of all *keys*.

    One of fewer keys hides those behind: what a cache has room for, and does not hold.
    """
    last = shape[-1] if shape else 1
    shorter = isinstance(last, int) and isinstance(keys, int) and 1 < last < keys
    return (*shape[:-1], keys) if shorter else shape


def _check_groups(heads: Dim, kv_heads: Dim) -> None:
    if not isinstance(heads, int) or not isinstance(kv_heads, int):
        return
    if kv_heads < 1 or heads % kv_heads:
        msg = f"{heads} heads cannot share {kv_heads} heads of keys and values"
        raise VerifyError(msg)


def _work_attention(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Both matmuls in full, as `torch.utils.flop_counter` counts them.

    A causal mask halves what a kernel has to compute; the convention of the
    field counts the whole square all the same. The softmax is not counted.
    """
    q, k, v = operands[:3]
    moved = touch_all(attributes, operands, results)
    flops = 2 * (q.numel * k.shape[-2] + results[0].numel * v.shape[-2])
    return Work(flops, moved.bytes_read, moved.bytes_written)


ATTENTION = OpDef(
    name="attention",
    arity=(3, None),
    infer=_infer_attention,
    work=_work_attention,
    attributes={
        "causal": OPTIONAL_BOOL,  # query i sees keys up to i
        "scale": OPTIONAL_FLOAT,  # 1 / sqrt(head_dim) if absent
        "mask_hides": OPTIONAL_BOOL,  # true in a boolean mask hides, not shows
        "dropout": OPTIONAL_FLOAT,  # share of the weights that training zeroes
        "spelled_out": OPTIONAL_TEXTS,
    },
    summary="q, k, v, masks...: softmax(scale * q k^T + mask) v; heads may be shared",
)


def _infer_rotary(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x, cos, sin = (operand.type for operand in operands)
    if not x.rank or not cos.rank or not sin.rank:
        msg = f"expected vectors to rotate and angles, got {x}, {cos}, {sin}"
        raise VerifyError(msg)
    broadcast([cos.shape, sin.shape])
    return [Abstract(x)]


def _work_rotary(
    attributes: Record, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Work:
    """Two products and a sum for each element that is rotated."""
    moved = touch_all(attributes, operands, results)
    out = results[0]
    rotated = out.numel
    width = attributes.integer("width", 0)
    if width and out.shape[-1]:
        rotated = rotated // out.shape[-1] * width
    return Work(3 * rotated, moved.bytes_read, moved.bytes_written)


ROTARY = OpDef(
    name="rotary",
    arity=(3, 3),
    infer=_infer_rotary,
    work=_work_rotary,
    attributes={
        "interleaved": OPTIONAL_BOOL,  # pairs are neighbours, not half a row apart
        "width": OPTIONAL_INT,  # elements of each row that are rotated; all if absent
        "spelled_out": OPTIONAL_TEXTS,
    },
    summary="x, cos, sin: pairs of elements rotated by the angles of their position",
)

OPS = named(ATTENTION, ROTARY)
