"""Groups of GEMMs that err alike, and those less sure than the others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfc.costmodels.gemm.layouts import are_unaligned
from perfc.costmodels.gemm.residual import BEYOND, beyond_rows, is_beyond
from perfc.costmodels.kernels import (
    ARRAYS,
    FLOATS,
    IntervalGroup,
    KernelTable,
    OneGroup,
    OneSignature,
)
from perfc.costmodels.machine import Target

_BATCHED = " batched"
"""In the names of batched GEMMs; where none is known, they are as others."""

_OLD = " before Volta"
"""In the names of other GEMMs there, whose fp32 kernels are Maxwell's: of no fit."""

_ODD = " unaligned"
"""In the names of GEMMs on tensor cores whose lines no vector loads reach, of which no
row sets an interval."""

_OLD_ARCHITECTURES = frozenset({"Maxwell", "Pascal"})


def gemm_groups(kernels: KernelTable, target: Target) -> Iterator[IntervalGroup]:
    """Yield batched GEMMs, others, and odd ones; beyond measured ones are wider."""
    odd = np.asarray(are_unaligned(kernels.signatures, target, ARRAYS) > 0)
    batched = (kernels.param("b") != 1) & ~odd
    widths = np.where(beyond_rows(kernels, target), BEYOND, 1.0)
    yield IntervalGroup((_BATCHED, ""), batched, widths)
    yield IntervalGroup((_single(target),), ~batched & ~odd, widths)
    yield IntervalGroup((_ODD,), odd)


def gemm_group(one: OneSignature, target: Target) -> OneGroup:
    """Return the group of one GEMM."""
    if are_unaligned(one, target, FLOATS) > 0:
        return OneGroup((_ODD,))
    width = BEYOND if is_beyond(one, target) else 1.0
    if one.param("b") != 1:
        return OneGroup((_BATCHED, ""), width)
    return OneGroup((_single(target),), width)


def _single(target: Target) -> str:
    """Return the suffix of GEMMs that are not batched: one for GPUs before Volta."""
    return _OLD if target.device.architecture in _OLD_ARCHITECTURES else ""
