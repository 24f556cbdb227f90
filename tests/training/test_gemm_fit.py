"""Fitting the model of GEMMs: parameters that made the rows come back."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
import pytest
from tests.costmodels.signatures import gemm
from training.gemm import GemmRows, fit_gemm
from training.gemm_residual import Distillation, fit_residual, fit_residuals
from training.network_fit import Training, write_networks
from training.robust import robust_least

from perfc.costmodels import KernelTable, load_target
from perfc.costmodels.fitted_files import Network
from perfc.costmodels.gemm import (
    GemmParameters,
    features_of,
    gemms_of,
    simt_parameters,
    tensor_parameters,
)

SHORT = Distillation(drawn=2000, training=Training(hidden=(32, 16), epochs=150))


def rows_of(target: str, count: int, truth: GemmParameters, dtype: str) -> GemmRows:
    """Return GEMMs of many sizes that took what *truth* says."""
    random = np.random.default_rng(len(target))
    sizes = np.exp2(random.uniform(5, 13, (count, 3))).astype(int).tolist()
    table = KernelTable([gemm(*s, dtype=dtype, math=dtype) for s in sizes])
    machine = load_target(target)
    none = np.zeros(count)
    gemms = gemms_of(table, machine)
    rows = GemmRows(machine, gemms, none, none, none, simt=dtype == "fp32")
    return attrs.evolve(rows, measured_s=rows.kernel_s(truth))


def test_outliers_and_limits() -> None:
    """A line through 90 points of a hundred, and a limit where the rest pulls."""
    at = np.linspace(0, 1, 100)
    measured = 3 * at + 1
    measured[::10] += 50

    def residuals(line: np.ndarray) -> np.ndarray:
        return np.asarray(line[0] * at + line[1] - measured)

    free = np.array([[-10.0, 10.0], [-10.0, 10.0]])
    found = robust_least(residuals, np.zeros(2), free, 0.05)
    held = robust_least(residuals, np.zeros(2), np.array([[-10, 2.0], [-10, 10]]), 0.05)

    assert pytest.approx([3, 1], abs=0.02) == found.tolist()
    assert held[0] == 2


@pytest.mark.parametrize(
    ("dtype", "targets", "shipped"),
    [
        ("fp32", ("v100", "a100"), simt_parameters()),
        ("bf16", ("a100", "h100"), tensor_parameters("another")),
    ],
)
def test_parameters_come_back(
    dtype: str, targets: tuple[str, ...], shipped: GemmParameters
) -> None:
    """Rows of two GPUs that follow the model say with which parameters they do.

    Exactly if nothing else is believed, and nearly against what is.
    """
    truth = attrs.evolve(shipped, tile_efficiency=0.7, memory_efficiency=0.6)
    rows = [rows_of(target, 1000, truth, dtype) for target in targets]

    names = ("tile_efficiency", "memory_efficiency")
    alone = fit_gemm(rows, shipped, names, belief=0.0)
    found = fit_gemm(rows, shipped, names)

    for parameters, within in ((alone, 1e-6), (found, 0.01)):
        assert pytest.approx(0.7, rel=within) == parameters.tile_efficiency
        assert pytest.approx(0.6, rel=within) == parameters.memory_efficiency


def test_a_network_learns_what_the_model_does_not_say(tmp_path: Path) -> None:
    """A law of the number of rows is found, no factor is beyond those measured."""
    shipped = tensor_parameters("Hopper")
    rows = rows_of("h100", 1500, shipped, "bf16")
    modelled_s = rows.kernel_s(shipped)
    law = np.where(rows.gemms.sizes[1] > 256, 1.5, 0.8)
    network = fit_residual(
        attrs.evolve(rows, measured_s=law * modelled_s), shipped, SHORT
    )

    found = np.exp(network(features_of(modelled_s, rows.gemms, rows.target)))

    assert np.abs(np.log(found / law)).mean() < 0.05
    assert pytest.approx(np.log([0.8, 1.5]).tolist()) == list(network.limits)
    assert found.max() <= 1.5 * (1 + 1e-6)
    _check_file(network, tmp_path / "networks.npz")


def _check_file(network: Network, path: Path) -> None:
    """Layers are stored by target and type, with the sizes that they hold for."""
    write_networks({("h100-sxm-80g", "bf16"): network}, path)
    with np.load(path) as stored:
        names = set(stored.files)
        limits = stored["h100-sxm-80g/bf16/limits"].tolist()
    assert {"h100-sxm-80g/bf16/weights0", "h100-sxm-80g/bf16/sizes"} < names
    assert list(network.limits) == limits


def test_networks_do_not_depend_on_processes() -> None:
    """Two at a time are what they are one by one."""
    shipped = tensor_parameters("Hopper")
    parts = [(rows_of(gpu, 300, shipped, "bf16"), shipped) for gpu in ("h100", "h200")]
    few = Distillation(drawn=50, training=Training(hidden=(4,), epochs=2))

    together = fit_residuals(parts, few)
    apart = fit_residuals(parts, attrs.evolve(few, processes=1))

    for one, other in zip(together, apart, strict=True):
        assert one.chip == other.chip == ("9.0", 132)
        for (weights, bias), (same, also) in zip(one.layers, other.layers, strict=True):
            assert weights.tolist() == same.tolist()
            assert bias.tolist() == also.tolist()
