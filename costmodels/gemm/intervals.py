"""Groups of GEMMs that err alike, and those less sure than the others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perfc.costmodels.gemm import layouts
from perfc.costmodels.gemm.formula import tile_spread, tile_spreads
from perfc.costmodels.gemm.machine import Size
from perfc.costmodels.gemm.parameters import SIMT_MODES, TENSOR_KERNELS, UNALIGNED
from perfc.costmodels.gemm.residual import BEYOND, beyond_rows, is_beyond
from perfc.costmodels.gemm.tiles import NO_BATCHED_ROWS
from perfc.costmodels.kernels import (
    ARRAYS,
    IntervalGroup,
    KernelTable,
    OneGroup,
    OneSignature,
    one_of,
)
from perfc.costmodels.machine import Target

_BATCHED = " batched"
"""In the names of batched GEMMs; where none is known, they are as others."""

_OLD = " before Volta"
"""In the names of other GEMMs there, whose fp32 kernels are Maxwell's: of no fit."""

_ODD = " unaligned"
"""In the names of GEMMs on tensor cores whose lines no vector loads reach, of which no
row sets an interval."""

_UNALIGNED = TENSOR_KERNELS.index(UNALIGNED)

_OLD_ARCHITECTURES = frozenset({"Maxwell", "Pascal"})


def gemm_groups(kernels: KernelTable, target: Target) -> Iterator[IntervalGroup]:
    """Yield batched GEMMs, others, and odd ones; beyond measured ones are wider."""
    odd = np.asarray(layouts.are_unaligned(kernels.signatures, target, ARRAYS) > 0)
    batched = (kernels.param("b") != 1) & ~odd
    widths = np.where(beyond_rows(kernels, target), BEYOND, 1.0)
    # `tile_spread` of batches without tensor cores, 0 of others.
    spreads = np.zeros(len(kernels))
    if target.device.compute_capability in NO_BATCHED_ROWS:
        simt = batched & np.asarray(one_of(kernels.math, tuple(SIMT_MODES)))
        turned = np.asarray(one_of(kernels.text("layout"), layouts.TRANSPOSED))
        for transposed in (False, True):
            rows = np.flatnonzero(simt & (turned == transposed))
            if len(rows):
                b, m, n, k = (kernels.param(name, 1.0)[rows] for name in "bmnk")
                peaks = kernels.peak_flops_per_s(target)[rows]
                size = Size(b, m, n, k, kernels.bytes[rows], peaks)
                spreads[rows] = tile_spreads(size, target, transposed=transposed)
    yield IntervalGroup((_BATCHED, ""), batched, widths, spreads)
    yield IntervalGroup((_single(target),), ~batched & ~odd, widths)
    yield IntervalGroup((_ODD,), odd)


def gemm_group(one: OneSignature, target: Target) -> OneGroup:
    """Return the group of one GEMM."""
    cores = one.math not in SIMT_MODES
    if cores and layouts.tensor_kernels_of_one(one, target) == _UNALIGNED:
        return OneGroup((_ODD,))
    width = BEYOND if is_beyond(one, target) else 1.0
    if one.param("b") != 1:
        return OneGroup((_BATCHED, ""), width, _spread(one, target))
    return OneGroup((_single(target),), width)


def _spread(one: OneSignature, target: Target) -> float:
    """Return `tile_spread` of one GEMM."""
    if target.device.compute_capability not in NO_BATCHED_ROWS:
        return 0.0
    peak = target.device.flops_per_s.get(one.math, 0.0)
    if one.math not in SIMT_MODES or not (peak and one.bytes):
        return 0.0
    b, m, n, k = (one.param(name, 1.0) for name in "bmnk")
    if not (b and m and n and k):
        return 0.0
    size = Size(b, m, n, k, one.bytes, peak)
    transposed = one.kernel.params.get("layout") in layouts.TRANSPOSED
    return tile_spread(size, target, transposed=transposed)


def _single(target: Target) -> str:
    """Return the suffix of GEMMs that are not batched: one for GPUs before Volta."""
    return _OLD if target.device.architecture in _OLD_ARCHITECTURES else ""
