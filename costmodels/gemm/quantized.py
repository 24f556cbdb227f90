"""GEMMs of 8 bits whose left operand comes in 16: a kernel before them quantises it.

Measured rows of the types `QUANTISED`, and so the models, are of both kernels. Where
the launch graph has the first on its own (param `quantized`), the GEMM is what is left.
"""

from __future__ import annotations

import numpy as np

from perfc.costmodels import streaming
from perfc.costmodels.gemm.parameters import QUANTISED
from perfc.costmodels.kernels import (
    ARRAYS,
    FLOATS,
    Floats,
    KernelTable,
    Maths,
    Number,
    OneSignature,
    Signatures,
    one_of,
)
from perfc.costmodels.machine import Target

_TYPES = tuple(QUANTISED)


def own_bytes(kernels: Signatures[Number], maths: Maths[Number]) -> Number:
    """Return the bytes of the kernels that multiply, whose left operand has 8 bits.

    Calls read it in 16.
    """
    whole = one_of(kernels.dtype, _TYPES)
    if not maths.any(whole):
        return kernels.bytes
    calls = maths.flag(whole) * (1.0 - maths.flag(kernels.given("quantized")))
    return kernels.bytes - calls * (kernels.param("m") * kernels.param("k"))


def without_quantizing(seconds: Floats, kernels: KernelTable, target: Target) -> Floats:
    """Take off the kernel before, where it is another's; a kernel's floor stays."""
    left = seconds
    for dtype, scales in QUANTISED.items():
        rows = (kernels.dtype == dtype) & kernels.given("quantized")
        if rows.any():
            signatures = kernels.signatures
            found = _left(seconds, signatures, scales, target, ARRAYS)
            left = np.where(rows, found, left)
    return left


def without_quantizing_one(seconds: float, one: OneSignature, target: Target) -> float:
    """Take off the kernel before one GEMM; see `without_quantizing`."""
    scales = QUANTISED.get(one.dtype)
    if scales is None or not one.given("quantized"):
        return seconds
    return _left(seconds, one, scales, target, FLOATS)


def _left(
    seconds: Number,
    kernels: Signatures[Number],
    scales: str,
    target: Target,
    maths: Maths[Number],
) -> Number:
    m, k = kernels.param("m"), kernels.param("k")
    left_s = seconds - streaming.quantize_seconds(m, k, scales, target, maths)
    return maths.most(left_s, target.device.kernel_floor_s)
