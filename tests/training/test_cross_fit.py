"""Rows predicted by networks that lack their sizes."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from tests.costmodels.signatures import gemm
from training.cross_fit import cross_fitted, reported
from training.gemm_residual import Distillation
from training.network_fit import Training
from training.samples import CALIBRATION, FITTED, TEST, Sample

from perfc.costmodels import KernelTable, load_target
from perfc.costmodels.gemm import gemms_of, tensor_parameters, tensor_seconds
from perfc.fitting.scores import GroupKey

L40S = load_target("l40s")
SHORT = Distillation(
    drawn=500, training=Training(hidden=(32, 16), epochs=60), processes=1
)
HEIGHTS = (1, 16, 64, 256, 1024, 4096)


def sample_of(weights: int, dtype: str = "bf16") -> Sample:
    """Return rows of so many (n, k), short ones a fifth faster than the model says."""
    draw = np.random.default_rng(0)
    # Whole vectors of 16 bytes: no network corrects kernels of other lines.
    sides = (8 * np.exp2(draw.uniform(4, 10, (weights, 2))).astype(int)).tolist()
    kernels = [
        gemm(m, n, k, dtype=dtype, math=dtype) for n, k in sides for m in HEIGHTS
    ]
    table = KernelTable(kernels)
    gemms = gemms_of(table, L40S)
    seconds = tensor_seconds(gemms, L40S, tensor_parameters("Ada Lovelace"))
    seconds *= np.where(gemms.sizes[1] > HEIGHTS[2], 1.0, 0.8)
    part = np.full(len(table), FITTED)
    part[:: len(HEIGHTS)] = CALIBRATION
    key = GroupKey("l40s", "gemm", dtype, "kernel")
    return Sample(key, L40S, table, seconds, part)


def test_what_holds_for_all_sizes_is_known_of_those_left_out() -> None:
    """Rows whose (n, k) a network has not seen are predicted by its law of m."""
    sample = sample_of(60)

    (found,) = cross_fitted([sample], SHORT)

    assert found.apart_s is not None
    assert len(found.apart_s) == len(sample)
    logs = np.log(found.apart_s / sample.measured_s)
    assert 0.0 < np.abs(logs).mean() < 0.05
    assert found.kernel_s([]) is found.apart_s
    few = np.arange(7)
    assert found.take(few).kernel_s([]).tolist() == found.apart_s[few].tolist()


def test_rows_do_not_tell_of_themselves() -> None:
    """What one (n, k) took changes nothing of how it is predicted."""
    sample = sample_of(30)
    n, k = (sample.table.param(name) for name in "nk")
    one = (n == n[0]) & (k == k[0])
    slower = attrs.evolve(
        sample, measured_s=np.where(one, 9.0, 1.0) * sample.measured_s
    )

    (before,), (after,) = cross_fitted([sample], SHORT), cross_fitted([slower], SHORT)

    assert before.apart_s is not None
    assert after.apart_s is not None
    assert before.apart_s[one].tolist() == after.apart_s[one].tolist()
    assert before.apart_s.tolist() != after.apart_s.tolist()


def test_reported_rows_do_not_tell_of_each_other() -> None:
    """What all of them took changes nothing of how they are predicted; others do."""
    sample = sample_of(30)
    apart = np.arange(len(sample)) // len(HEIGHTS) % 3 == 0
    sample = attrs.evolve(sample, part=np.where(apart, TEST, FITTED))
    slower, others = (
        attrs.evolve(sample, measured_s=np.where(at, 3.0, 1.0) * sample.measured_s)
        for at in (apart, ~apart)
    )

    (before,), (after,), (taught,) = (
        reported([one], SHORT) for one in (sample, slower, others)
    )

    assert before.apart_s is not None
    assert after.apart_s is not None
    assert taught.apart_s is not None
    assert len(before) == apart.sum()
    assert before.apart_s.tolist() == after.apart_s.tolist()
    assert (taught.apart_s > 1.5 * before.apart_s).mean() > 0.5


@pytest.mark.parametrize(
    "sample",
    [
        attrs.evolve(sample_of(6), key=GroupKey("l40s", "conv2d", "bf16", "kernel")),
        attrs.evolve(sample_of(6), key=GroupKey("l4", "gemm", "bf16", "kernel")),
    ],
)
def test_others_are_not_cross_fitted(sample: Sample) -> None:
    """Other ops, and GPUs without rows."""
    assert [sample] == cross_fitted([sample], SHORT)
