"""Numbers as reports write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.tools.reports import format_change


@pytest.mark.parametrize(
    ("share", "decimals", "expected"),
    [
        (0.1234, 1, "+12.3 %"),
        (-0.21, 1, "-21.0 %"),
        (-0.00049, 1, "0.0 %"),
        (-1e-9, 2, "0.00 %"),
        (4e-5, 2, "0.00 %"),
    ],
)
def test_changes(share: float, decimals: int, expected: str) -> None:
    """They have a sign, but for what rounds to nothing."""
    assert expected == format_change(share, decimals)


@given(st.floats(-2, 2), st.integers(0, 2))
def test_nothing_is_less_than_nothing(share: float, decimals: int) -> None:
    """A sign stands before numbers alone of which a digit is not 0."""
    text = format_change(share, decimals)

    assert text.startswith(("+", "-")) == any(digit in text for digit in "123456789")
