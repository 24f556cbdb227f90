"""Fitted rows as if they were not: each part predicted by a fit to the others.

An eighth of the (n, k) is for the intervals, some twenty to forty, and how far off the
fit is differs from one to the next more than within one. Fitted rows say it, too
(cross-conformal prediction: Vovk, Annals of Mathematics and AI 2015).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import SIMT_MODES, factors, has_network, tensor_parameters
from perfc.fitting.gemm import ProductRows
from perfc.fitting.gemm_residual import fit_residual
from perfc.fitting.samples import FITTED, Sample

Floats: TypeAlias = NDArray[np.float64]

_FOLDS = 5


def cross_fitted(sample: Sample) -> list[tuple[Sample, Floats]]:
    """Return fitted rows with what their kernels take by networks that lack them.

    Nothing of an op without networks, nor of products without tensor cores, which are
    split by all of their sizes.
    """
    key = sample.key
    if key.op != "gemm" or key.dtype in SIMT_MODES:
        return []
    if not has_network(sample.target, key.dtype):
        return []
    fitted = sample.of(FITTED)
    folds = np.array([_fold(*weight) for weight in _weights(fitted)])
    rows = ProductRows.of(fitted)
    seconds = rows.kernel_s(tensor_parameters(sample.target.device.architecture))
    found = seconds.copy()
    for fold in range(_FOLDS):
        out, others = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        if len(out) and len(others):
            network = fit_residual(rows.take(others), seconds[others])
            part = rows.products.part(out)
            found[out] *= factors(network, seconds[out], part, sample.target)
    return [(fitted, found)]


def _weights(rows: Sample) -> Sequence[tuple[int, int]]:
    n, k = (rows.table.param(name).astype(int).tolist() for name in "nk")
    return list(zip(n, k, strict=True))


def _fold(n: int, k: int) -> int:
    return zlib.crc32(f"perfc fold n {n} k {k}".encode()) % _FOLDS
