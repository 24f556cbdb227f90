"""Sizes of memory are written alike in all reports and errors."""

from __future__ import annotations

import pytest

from perfc.ir.support import format_bytes


@pytest.mark.parametrize(
    ("amount_bytes", "expected"),
    [
        (1.5 * 2**40, "1.50 TiB"),
        (80 * 2**30, "80.0 GiB"),
        (1000 * 2**20, "1000 MiB"),
        (99_999, "97.7 KiB"),
        (1, "1 B"),
        (0, "0 B"),
    ],
)
def test_sizes_have_binary_prefixes(amount_bytes: float, expected: str) -> None:
    """Three digits, and all that are before the point."""
    assert expected == format_bytes(amount_bytes)
