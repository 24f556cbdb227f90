"""Parameters of GEMMs, and how far off they are."""

from __future__ import annotations

import tomllib
from pathlib import Path

import attrs
import numpy as np
import pytest
from tests.costmodels.signatures import gemm
from training.samples import CALIBRATION, FITTED, TEST, Sample
from training.shipped_gemms import NOT_SHIPPED, fit_parameters, fit_wide, shipped

from perfc.costmodels import KernelTable, load_target
from perfc.costmodels.fitted_files import networks
from perfc.costmodels.gemm import (
    RESIDUAL_FILE,
    gemms_of,
    simt_parameters,
    tensor_parameters,
    tensor_seconds,
)
from perfc.fitting.scores import GroupKey

SIDES = (64, 512, 4096)


def _rows(name: str, dtype: str, slower: float) -> Sample:
    """Return GEMMs of a GPU that takes *slower* times as long as the model says.

    Every other one is not fitted, but says how far off the fit is.
    """
    target = load_target(name)
    sizes = [(m, n, k) for m in SIDES for n in SIDES for k in SIDES]
    table = KernelTable([gemm(*size, dtype=dtype, math=dtype) for size in sizes])
    architecture = target.device.architecture if dtype == "bf16" else "all"
    seconds = tensor_seconds(
        gemms_of(table, target), target, tensor_parameters(architecture)
    )
    part = np.where(np.arange(len(table)) % 2, FITTED, CALIBRATION)
    key = GroupKey(name, "gemm", dtype, "kernel")
    return Sample(key, target, table, slower * seconds, part)


def _marked(sample: Sample, part: int) -> Sample:
    return attrs.evolve(sample, part=np.full(len(sample), part))


SIMT = _rows("v100-sxm2-16g", "fp32", 1.0)
KNOWN = _rows("l40s", "bf16", 1.0)
OTHER = _rows("h100-sxm-80g", "bf16", 1.3)


def test_a_gpu_without_rows_apart_is_as_far_off_as_all() -> None:
    """It says nothing of the errors that are shared, and takes them over."""
    samples = [SIMT, KNOWN, _marked(OTHER, FITTED)]

    tables = fit_parameters(samples)

    shared, own = tables["tensor.all"], tables['tensor."Hopper"']
    known = tables['tensor."Ada Lovelace"']
    assert shared.sigma_shared == own.sigma_shared
    assert shared.sigma_independent == own.sigma_independent
    assert known.sigma_independent != own.sigma_independent


@pytest.mark.parametrize("part", [TEST, CALIBRATION])
def test_a_gpu_without_rows_to_fit_has_no_parameters(part: int) -> None:
    """Those of all GPUs hold for it."""
    tables = fit_parameters([SIMT, KNOWN, _marked(OTHER, part)])

    assert {"simt", "tensor.all", 'tensor."Ada Lovelace"'} == tables.keys()


def test_networks_that_lose_elsewhere_are_left_out(tmp_path: Path) -> None:
    """By the list of the scores: `GPU/type`."""
    listed = tmp_path / "corrections.toml"
    listed.write_text('[not_shipped]\n"l40s/bf16" = "farther off"\n', encoding="utf-8")
    known = networks(RESIDUAL_FILE)

    left = set(known) - set(shipped(known, listed))

    assert {("l40s", "bf16")} == left


def test_no_network_ships_that_is_listed() -> None:
    """`make fit` and the file that perfc has agree."""
    listed = tomllib.loads(NOT_SHIPPED.read_text(encoding="utf-8"))["not_shipped"]

    assert not {"/".join(key) for key in networks(RESIDUAL_FILE)} & set(listed)


def test_lanes_change_nothing_of_the_memory() -> None:
    """Rows of one board with 128 lanes do not say what memory and L2 give."""
    usual = simt_parameters()
    found = fit_wide([_rows("h100-sxm-80g", "fp32", 1.5)], usual)

    assert found.tile_efficiency != usual.tile_efficiency
    for name in ("epilogue", "memory_efficiency", "l2_efficiency", "streams_per_sm"):
        assert getattr(usual, name) == getattr(found, name)
