"""What the ops that passes raise compute, in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from perfc.ir import Record

Array = npt.NDArray[Any]
Formula = Callable[[Record, Sequence[Array]], Array]


def _attention(attributes: Record, operands: Sequence[Array]) -> Array:
    q, k, v, *masks = operands
    if q.ndim == 4:
        k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scale = attributes.get("scale")
    factor = scale if isinstance(scale, float) else q.shape[-1] ** -0.5
    scores = q @ np.swapaxes(k, -1, -2) * np.float32(factor)
    for mask in masks:
        if mask.dtype == np.bool_:
            shown = ~mask if attributes.flag("mask_hides") else mask
            scores = np.where(shown, scores, -np.inf)
        else:
            scores = scores + mask
    if attributes.flag("causal"):
        below = np.tril(np.ones(scores.shape[-2:], np.bool_))
        scores = np.where(below, scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True) @ v)


def _rotary(attributes: Record, operands: Sequence[Array]) -> Array:
    x, cos, sin = operands
    if cos.shape[-1] * 2 == x.shape[-1]:
        cos, sin = (np.concatenate((a, a), -1) for a in (cos, sin))
    half = x.shape[-1] // 2
    turned = np.concatenate((-x[..., half:], x[..., :half]), -1)
    return np.asarray(x * cos + turned * sin)


def _epsilon(attributes: Record) -> float:
    epsilon = attributes.get("epsilon")
    return epsilon if isinstance(epsilon, float) else 1e-5


def _rms_norm(attributes: Record, operands: Sequence[Array]) -> Array:
    x = operands[0]
    axes = tuple(range(attributes.integer("axis") % x.ndim, x.ndim))
    scale = np.sqrt(np.square(x).mean(axes, keepdims=True) + _epsilon(attributes))
    return np.asarray(x / scale * (operands[1] if len(operands) > 1 else 1))


def _group_norm(attributes: Record, operands: Sequence[Array]) -> Array:
    x, *weights = operands
    groups = attributes.integer("groups", x.shape[1])
    rows = x.reshape(x.shape[0], groups, -1)
    spread = np.sqrt(rows.var(-1, keepdims=True) + _epsilon(attributes))
    normal = ((rows - rows.mean(-1, keepdims=True)) / spread).reshape(x.shape)
    per_channel = [w.reshape(-1, *(1,) * (x.ndim - 2)) for w in weights]
    for function, weight in zip((np.multiply, np.add), per_channel, strict=False):
        normal = function(normal, weight)
    return np.asarray(normal)


def _index(attributes: Record, operands: Sequence[Array]) -> Array:
    x, tuples, *_ = operands
    if attributes.get("axes") is not None:
        places = dict(zip(attributes.integers("axes"), operands[1:], strict=True))
        return np.asarray(x[tuple(places.get(a, slice(None)) for a in range(x.ndim))])
    lead = (slice(None),) * attributes.integer("axis")
    return np.asarray(x[(*lead, *np.moveaxis(tuples, -1, 0))])


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


def _gelu(attributes: Record, operands: Sequence[Array]) -> Array:
    (x,) = operands
    approximate = attributes.get("approximate")
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return np.asarray(0.5 * x * (1 + np.tanh(inner)))
    if approximate == "sigmoid":
        return np.asarray(x * _sigmoid(1.702 * x))
    erf = [math.erf(v / math.sqrt(2)) for v in x.reshape(-1)]
    return np.asarray(0.5 * x * (1 + np.array(erf, x.dtype).reshape(x.shape)))


def _silu(attributes: Record, operands: Sequence[Array]) -> Array:
    return np.asarray(operands[0] * _sigmoid(operands[0]))


def _hardswish(attributes: Record, operands: Sequence[Array]) -> Array:
    return np.asarray(operands[0] * np.clip(operands[0] + 3, 0, 6) / 6)


def _mish(attributes: Record, operands: Sequence[Array]) -> Array:
    return np.asarray(operands[0] * np.tanh(np.log1p(np.exp(operands[0]))))


def _clip(attributes: Record, operands: Sequence[Array]) -> Array:
    limits = [attributes.get(name) for name in ("min", "max")]
    low, high = (limit if isinstance(limit, float) else None for limit in limits)
    return np.asarray(np.clip(operands[0], low, high))


FORMULAS: Mapping[str, Formula] = {
    "attention": _attention,
    "clip": _clip,
    "gelu": _gelu,
    "group_norm": _group_norm,
    "hardswish": _hardswish,
    "index": _index,
    "mish": _mish,
    "rms_norm": _rms_norm,
    "rotary": _rotary,
    "silu": _silu,
}
"""By op name; the result has the type of operand 0."""
