"""Isotonic regression: the sequence nearest to another that never falls."""

from __future__ import annotations

import numpy as np

from perfc.costmodels.kernels import Floats


def isotonic_regression(values: Floats, counts: Floats) -> Floats:
    """Return values that never fall, of least sum of counts times squared distance.

    Neighbours that fall are pooled into their mean until none do (Barlow, Bartholomew,
    Bremner and Brunk, 1972, pool adjacent violators).

    Args:
        values: In order, shape (rows,).
        counts: How often each was measured, shape (rows,).

    """
    pools: list[tuple[float, float, int]] = []
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        mean, weight, length = value, count, 1
        while pools and pools[-1][0] > mean:
            before, heavy, rows = pools.pop()
            mean = (before * heavy + mean * weight) / (heavy + weight)
            weight, length = heavy + weight, rows + length
        pools.append((mean, weight, length))
    found: Floats = np.repeat(
        [mean for mean, _, _ in pools], [rows for _, _, rows in pools]
    )
    return found
