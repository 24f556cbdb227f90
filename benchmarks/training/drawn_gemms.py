"""GEMMs like those that were measured, and beyond them: sizes without times.

A network that learns from trees what they say (`gemm_residual`) sees them there, too,
so that it says the same between the sizes that were measured and beyond them.
"""

from __future__ import annotations

import math

import numpy as np

from perfc.costmodels.gemm import REACH, Gemms
from perfc.costmodels.kernels import Floats

_LEAST_STRETCH, _MOST_STRETCH = -0.5, math.log2(REACH)
"""Exponents of two by which sizes are stretched: as far as networks are used."""

_ROUND = 7
"""Stretched sizes are multiples of powers of two below this one, each as often."""


def drawn_gemms(measured: Gemms, count: int) -> Gemms:
    """Return *count* GEMMs of sizes that were measured, combined anew.

    Each size is one of the same kind: batched or not, an operand transposed or not. In
    every second GEMM each is stretched by itself. The same every time.

    Args:
        measured: All of one type, so that elements are as wide in all.
        count: How many to draw.

    """
    random = np.random.default_rng(0)
    kinds = 2 * (measured.sizes[0] > 1) + measured.transposed
    drawn = random.integers(len(measured), size=count)
    sizes = measured.sizes[:, drawn]
    for kind in np.unique(kinds):
        at = np.flatnonzero(kinds[drawn] == kind)
        for size in sizes:
            size[at] = size[at][random.permutation(len(at))]
    sizes[:, ::2] = _stretched(sizes[:, ::2], random)
    return Gemms(
        sizes,
        _elements(sizes).T @ _widths(measured),
        np.full(count, measured.peak[0]),
        measured.transposed[drawn],
        np.zeros(count, dtype=np.bool_),
        measured.biased[drawn],
        measured.own[drawn],
    )


def _stretched(sizes: Floats, random: np.random.Generator) -> Floats:
    """Return sizes times up to eight; single GEMMs stay single, others batched."""
    steps = np.exp2(random.integers(0, _ROUND, sizes.shape))
    times = np.exp2(random.uniform(_LEAST_STRETCH, _MOST_STRETCH, sizes.shape))
    found = np.maximum(np.round(sizes * times / steps) * steps, 1.0)
    found[0] = np.where(sizes[0] > 1, np.maximum(found[0], 2.0), 1.0)
    return found


def _elements(sizes: Floats) -> Floats:
    """Return the elements of both operands, the result and a bias, shape (4, rows)."""
    b, m, n, k = sizes
    return np.array([b * m * k, b * k * n, b * m * n, b * n])


def _widths(measured: Gemms) -> Floats:
    """Return the bytes of an element of each, by what the measured GEMMs move."""
    elements = _elements(measured.sizes) / measured.bytes
    found, *_ = np.linalg.lstsq(elements.T, np.ones(len(measured)))
    return np.asarray(found, dtype=np.float64)
