"""What rows of one CPU say of another."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
import pytest
from tests.fitting.rows import Law, gemms, noisy

from perfc.costmodels import MeasuredKernels, cost_models, load_target, price
from perfc.costmodels.cpu import shipped_rows
from perfc.costmodels.machine import Family, fits_of
from perfc.ir import Kernel
from perfc.measurements import kernel_of
from perfc.tools.calibration.calibration import Calibrated, calibrate_rows, profile_of

GEMMS = Family("gemm", "fp32")


def _as_shipped(share: float) -> Law:
    def law(kernel: Kernel, seconds: float) -> float:
        said = shipped_rows()[GEMMS].log_factor([kernel])[0]
        return seconds * float(np.exp(share * said))

    return law


def _calibrated(target: str, law: Law) -> Calibrated:
    timing = "event" if target == "cpu" else "kernel"
    return calibrate_rows(gemms(target, noisy(law), timing))


def _share(found: Calibrated) -> float:
    assert found.device is not None
    fit = found.device.families[0].fit
    assert fit is not None
    return fit.shipped


@pytest.mark.parametrize(
    ("target", "share", "expected"),
    [("cpu", 1.0, 1.0), ("cpu", -1.0, 0.0), ("v100", 1.0, 0.0)],
)
def test_a_machine_takes_what_its_own_rows_agree_to(
    target: str, share: float, expected: float
) -> None:
    """One that goes the same way all of it; one that does not, and a GPU, nothing."""
    assert expected == _share(_calibrated(target, _as_shipped(share)))


def test_a_profile_prices_with_what_it_took(tmp_path: Path) -> None:
    """What is written is read again, and foretells rows that were not fitted."""
    found = _calibrated("cpu", _as_shipped(1.0))
    rows = gemms("cpu", _as_shipped(1.0), "event")
    path = tmp_path / "mine.toml"
    path.write_text(profile_of(found, path, rows), encoding="utf-8")

    assert "\nshipped = 1.0\n" in path.read_text(encoding="utf-8")
    assert found.device is not None
    (family,) = found.device.families
    assert family.after is not None
    assert family.after.mape < 0.1
    target = load_target(str(path))
    fits = fits_of(found.device.fits)
    kernels = [kernel_of(row) for row in rows]
    alone = attrs.evolve(target, measured=MeasuredKernels())
    told = price(kernels, alone, cost_models()).seconds
    fitted = price(kernels, attrs.evolve(alone, fits=fits), cost_models()).seconds
    assert np.allclose(told, fitted, rtol=1e-3)
