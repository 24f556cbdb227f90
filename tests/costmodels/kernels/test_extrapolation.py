"""What fitted models say of GPUs that no fit has seen."""

from __future__ import annotations

import pytest
from tests.costmodels.signatures import ALL_MODELS, bag, conv, gemm, over_rows

from perfc.costmodels import Provenance, load_target, price, target_names
from perfc.costmodels.kernels import extrapolation_remark
from perfc.ir import Kernel

GEMM = gemm(512, 512, 512)
FEW_ROWS, BATCH = gemm(8, 512, 512), gemm(512, 512, 512, b=4)
TENSOR_GEMM = gemm(512, 512, 512, dtype="fp16", math="fp16")
SOFTMAX = over_rows("softmax", 64, 64)


@pytest.mark.parametrize(
    ("kernel", "target", "provenance"),
    [
        (GEMM, "v100", Provenance.FITTED),
        (GEMM, "a30", Provenance.FITTED),  # compute capability 8.0, as A100
        (GEMM, "a10", Provenance.ANALYTIC),  # 8.6
        (GEMM, "p4", Provenance.FITTED),  # by a network, not by the formula
        (FEW_ROWS, "p4", Provenance.ANALYTIC),  # fewer than any that was measured
        (FEW_ROWS, "v100-pcie", Provenance.FITTED),
        (GEMM, "titan-xp", Provenance.ANALYTIC),
        (BATCH, "titan-xp", Provenance.FITTED),  # 6.1, as P4
        (GEMM, "h100", Provenance.FITTED),  # 9.0
        (GEMM, "mi210", Provenance.ANALYTIC),
        (TENSOR_GEMM, "h100-pcie", Provenance.FITTED),
        (TENSOR_GEMM, "4090", Provenance.FITTED),  # 8.9, as L40S
        (TENSOR_GEMM, "v100", Provenance.ANALYTIC),
        (TENSOR_GEMM, "b200", Provenance.ANALYTIC),
        (TENSOR_GEMM, "mi300x", Provenance.ANALYTIC),
        (SOFTMAX, "t4", Provenance.FITTED),
        (SOFTMAX, "gb200", Provenance.ANALYTIC),
        (conv(64, 64, 56, kernel=3), "2080ti", Provenance.FITTED),  # 7.5, as T4
        (conv(64, 64, 56, kernel=3), "a100", Provenance.ANALYTIC),
    ],
)
def test_a_number_is_fitted_where_its_fit_has_seen_the_gpus_kind(
    kernel: Kernel, target: str, provenance: Provenance
) -> None:
    """Elsewhere it is computed from the sheet, and says so."""
    assert [provenance] == price([kernel], load_target(target), ALL_MODELS).provenance


@pytest.mark.parametrize(
    "kernel", [GEMM, SOFTMAX, bag(64, 1, 1000, 2, 64), conv(8, 8, 9, kernel=3)]
)
def test_the_interval_widens_with_the_distance_from_the_fit(kernel: Kernel) -> None:
    """What kernels share is least on a fitted GPU and most on another maker's."""
    seen, unseen, other = (
        float(price([kernel], load_target(name), ALL_MODELS).sigma_common[0])
        for name in ("v100", "b200", "mi100")
    )

    assert seen <= unseen <= other
    assert seen < other


def test_only_other_makers_gpus_are_remarked_on() -> None:
    """The remark names the maker and the target."""
    remarked = {
        name for name in target_names() if extrapolation_remark(load_target(name))
    }

    assert {"mi100", "mi210", "mi250", "mi300x"} <= remarked
    assert not {"p4", "gb200", "rtx-4090"} & remarked
    assert "AMD" in str(extrapolation_remark(load_target("mi250")))
    assert "mi250's sheet" in str(extrapolation_remark(load_target("mi250")))
