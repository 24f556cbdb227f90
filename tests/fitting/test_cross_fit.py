"""Fitted rows predicted by networks that lack their (n, k)."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from tests.costmodels.kernels import gemm

from perfc.costmodels import (
    KernelTable,
    load_target,
    products_of,
    tensor_parameters,
    tensor_seconds,
)
from perfc.fitting.cross_fit import cross_fitted
from perfc.fitting.samples import CALIBRATION, FITTED, Sample
from perfc.fitting.scores import GroupKey

L40S = load_target("l40s")
HEIGHTS = (1, 16, 64, 256, 1024, 4096)


def sample_of(weights: int, dtype: str = "bf16") -> Sample:
    """Return rows of so many (n, k), short ones a fifth faster than the model says."""
    draw = np.random.default_rng(0)
    sides = np.exp2(draw.uniform(7, 13, (weights, 2))).astype(int).tolist()
    kernels = [
        gemm(m, n, k, dtype=dtype, math=dtype) for n, k in sides for m in HEIGHTS
    ]
    table = KernelTable(kernels)
    products = products_of(table, L40S)
    seconds = tensor_seconds(products, L40S, tensor_parameters("Ada Lovelace"))
    seconds *= np.where(products.sizes[1] > HEIGHTS[2], 1.0, 0.8)
    part = np.full(len(table), FITTED)
    part[:: len(HEIGHTS)] = CALIBRATION
    key = GroupKey("l40s", "gemm", dtype, "kernel")
    return Sample(key, L40S, table, seconds, part)


def test_what_holds_for_all_sizes_is_known_of_those_left_out() -> None:
    """Rows whose (n, k) a network has not seen are predicted by its law of m."""
    ((rows, seconds),) = cross_fitted(sample_of(60))

    assert len(rows) == 60 * (len(HEIGHTS) - 1)
    logs = np.log(seconds / rows.measured_s)
    assert 0.0 < np.abs(logs).mean() < 0.05


@pytest.mark.parametrize(
    "sample",
    [
        sample_of(60, dtype="fp32"),
        attrs.evolve(sample_of(60), key=GroupKey("l40s", "conv2d", "bf16", "kernel")),
        attrs.evolve(sample_of(60), target=load_target("v100-sxm2-16g")),
    ],
)
def test_others_are_not_cross_fitted(sample: Sample) -> None:
    """Types without tensor cores, other ops, GPUs without rows."""
    assert [] == cross_fitted(sample)
