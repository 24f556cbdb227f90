"""Kernels beside a GEMM: what a library launches with it in one call.

Measured rows, and so the models, are of whole calls. Where the launch graph has the
other kernels of a call on their own (params `beside`, how many, and `beside_bytes`,
what they move), the GEMM is what is left of the call.
"""

from __future__ import annotations

import numpy as np

from perfc.costmodels.kernels import (
    ARRAYS,
    FLOATS,
    Floats,
    KernelTable,
    Maths,
    Number,
    OneSignature,
)
from perfc.costmodels.machine import Target
from perfc.costmodels.streaming import KINDS, stream_seconds

BESIDE = frozenset({"beside", "beside_bytes"})
"""Parameters of a GEMM that say what is launched with it."""


def without_beside(seconds: Floats, kernels: KernelTable, target: Target) -> Floats:
    """Take off what the kernels beside take; at least the floor of a kernel stays."""
    count = kernels.param("beside")
    if not count.any():
        return seconds
    left = _left(seconds, count, kernels.param("beside_bytes"), target, ARRAYS)
    return np.where(count > 0, left, seconds)


def without_beside_one(seconds: float, one: OneSignature, target: Target) -> float:
    """Take off what the kernels beside one GEMM take; see `without_beside`."""
    count = one.param("beside")
    if count <= 0:
        return seconds
    moved = one.param("beside_bytes")
    return _left(seconds, count, moved, target, FLOATS)


def _left(
    seconds: Number,
    count: Number,
    moved: Number,
    target: Target,
    maths: Maths[Number],
) -> Number:
    """Return the seconds left of a call without kernels that move *moved* bytes."""
    floor_s = target.device.kernel_floor_s
    each_s = floor_s + KINDS["elementwise"].start_s
    beside_s = count * each_s + stream_seconds(moved, target, maths)
    return maths.most(seconds - beside_s, floor_s)
