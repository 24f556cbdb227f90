"""What rows say of sizes near theirs."""

from __future__ import annotations

import numpy as np
from tests.fitting.rows import gemms, noisy

from perfc.ir import Kernel
from perfc.tools.calibration.calibration import calibrate_rows


def _slow_where_narrow(kernel: Kernel, seconds: float) -> float:
    """A library that has no kernel for few columns."""
    return seconds * (3.0 if kernel.params.integer("n") <= 100 else 1.0)


def _as_perfc(kernel: Kernel, seconds: float) -> float:
    return seconds


def test_what_no_coefficient_says_is_learned_from_near_rows() -> None:
    """Held-out sizes that are slow like their neighbours are predicted so."""
    found = calibrate_rows(gemms("v100", noisy(_slow_where_narrow))).device

    assert found is not None
    (family,) = found.families
    assert family.before is not None
    assert family.after is not None
    assert family.fit is not None
    assert family.fit.near is not None
    assert family.fitted == len(family.fit.near.weights)
    assert family.before.mape > 0.25
    assert family.after.p50 < 0.1
    assert family.after.mape < family.before.mape / 2


def test_rows_that_a_model_explains_say_nothing_more() -> None:
    """Noise is no difference between sizes: there is nothing to correct by."""
    found = calibrate_rows(gemms("v100", noisy(_as_perfc, 0.1))).device

    assert found is not None
    near = found.families[0].fit
    assert near is not None
    assert near.near is None or np.abs(near.near.weights).max() < 0.1


def test_one_disturbed_row_does_not_spread() -> None:
    """A row that took thirty times as long leaves its neighbours where they were."""
    rows = gemms("v100", noisy(_as_perfc))
    victim = next(row for row in rows if row.split == "fit")

    def disturbed(kernel: Kernel, seconds: float) -> float:
        return seconds * (30.0 if kernel.params == victim.params else 1.0)

    found = calibrate_rows(gemms("v100", noisy(disturbed))).device
    assert found is not None
    assert found.families[0].after is not None
    assert found.families[0].after.mape < 0.08
