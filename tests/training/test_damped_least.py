"""Robust least squares by numpy alone."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from training.damped_least import damped_least

Floats = NDArray[np.float64]

AT = np.linspace(0.0, 1.0, 30)


def _residuals(x: Floats) -> Floats:
    """Return those of a line with two rows that something disturbed."""
    measured = 2.0 + 3.0 * AT
    measured[[4, 20]] += 40.0
    found: Floats = x[0] + x[1] * AT - measured
    return found


def test_rows_that_are_far_off_move_little() -> None:
    """Of thirty rows two lie by forty above the line of the others."""
    limits = np.array([[-10.0, 10.0], [-10.0, 10.0]])

    found = damped_least(_residuals, np.zeros(2), limits, 0.05)

    assert found.tolist() == pytest.approx([2.0, 3.0], abs=0.02)


def test_a_limit_holds() -> None:
    """A parameter that would go on stays at its limit; the other one follows."""
    limits = np.array([[-10.0, 10.0], [-10.0, 2.0]])

    found = damped_least(_residuals, np.zeros(2), limits, 0.05)

    assert found[1] == 2.0
    assert 2.2 < found[0] < 2.8
