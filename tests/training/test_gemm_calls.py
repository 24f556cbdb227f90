"""What of an eager GEMM's call passes before its kernel."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from tests.costmodels.signatures import gemm
from training.gemm import GemmRows
from training.gemm_calls import fit_gemm_shares
from training.samples import CALIBRATION, FITTED, Sample

from perfc.costmodels import KernelTable, load_target
from perfc.costmodels.gemm import simt_parameters
from perfc.fitting.scores import GroupKey

ROWS = 1500


def sample_of(target: str, share: float, *, bias: bool) -> Sample:
    """Return rows of event pairs with so much of the call before their kernel."""
    random = np.random.default_rng(len(target))
    sizes = np.exp2(random.uniform(5, 11, (ROWS, 3))).astype(int).tolist()
    kernels = [gemm(*size, layout="nt" if bias else "nn") for size in sizes]
    if bias:
        kernels = [attrs.evolve(k, params=k.params.updated(bias=True)) for k in kernels]
    table, machine = KernelTable(kernels), load_target(target)
    key = GroupKey(target, "gemm", "fp32", "event")
    part = np.full(ROWS, FITTED)
    sample = Sample(key, machine, table, np.ones(ROWS), part)
    rows = GemmRows.of(sample)
    call_s = rows.before_s + rows.beside_s
    kernel_s = rows.kernel_s(simt_parameters())
    measured_s = share * call_s + np.maximum(kernel_s, (1 - share) * call_s)
    return attrs.evolve(sample, measured_s=measured_s)


def test_shares_come_back() -> None:
    """Of GEMMs with a bias and without, which are calls of their own.

    Nearly: the formula is fitted beside them, and held to where it starts.
    """
    samples = [
        sample_of(gpu, share, bias=bias)
        for gpu in ("v100-pcie-32g", "a100-pcie-40g")
        for share, bias in ((0.45, False), (0.8, True))
    ]

    found = fit_gemm_shares(samples)

    assert pytest.approx({"gemm": 0.45, "gemm bias": 0.8}, abs=0.03) == found


def test_rows_that_are_not_fitted_say_nothing() -> None:
    """Nor do linear layers of Pascal, and rows of graphs."""
    known = sample_of("v100-pcie-32g", 0.45, bias=False)
    others = [
        attrs.evolve(sample_of("t4", 0.9, bias=False), part=np.full(ROWS, CALIBRATION)),
        sample_of("p4", 0.9, bias=True),
        attrs.evolve(known, key=attrs.evolve(known.key, timing="graph")),
    ]

    assert fit_gemm_shares([known, *others]) == fit_gemm_shares([known])
