"""Sizes are written alike in reports of plans and in their errors."""

from __future__ import annotations

import pytest

from perfc.planning.plans import size_text


@pytest.mark.parametrize(
    ("amount_bytes", "expected"),
    [
        (1.5e12, "1,500.0 GB"),
        (8e10, "80.0 GB"),
        (1e8, "0.1 GB"),
        (99_999_000, "99.999 MB"),
        (1, "0.000 MB"),
        (0, "0.0 GB"),
    ],
)
def test_small_tables_are_not_nothing(amount_bytes: float, expected: str) -> None:
    """Gigabytes, and megabytes below a tenth of one."""
    assert expected == size_text(amount_bytes)
