"""Groups of GEMMs that err alike, and those less sure than the others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfc.costmodels.gemm.residual import BEYOND, beyond_rows, is_beyond
from perfc.costmodels.kernels import (
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

_OLD_ARCHITECTURES = frozenset({"Maxwell", "Pascal"})


def gemm_groups(kernels: KernelTable, target: Target) -> Iterator[IntervalGroup]:
    """Yield batched GEMMs, and the others; those beyond measured ones are wider."""
    batched = kernels.param("b") != 1
    widths = np.where(beyond_rows(kernels, target), BEYOND, 1.0)
    yield IntervalGroup((_BATCHED, ""), batched, widths)
    yield IntervalGroup((_single(target),), ~batched, widths)


def gemm_group(one: OneSignature, target: Target) -> OneGroup:
    """Return the group of one GEMM."""
    width = BEYOND if is_beyond(one, target) else 1.0
    if one.param("b") != 1:
        return OneGroup((_BATCHED, ""), width)
    return OneGroup((_single(target),), width)


def _single(target: Target) -> str:
    """Return the suffix of GEMMs that are not batched: one for GPUs before Volta."""
    return _OLD if target.device.architecture in _OLD_ARCHITECTURES else ""
