"""Sizes of memory, and of what lies in it, as all reports and errors write them."""

from __future__ import annotations

US = 1e6
"""Microseconds in a second."""


def format_bytes(amount: float) -> str:
    """Write bytes of memory with three significant digits and a binary prefix.

    What moves, and how fast, has decimal prefixes: MB, GB/s.
    """
    for exponent, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if amount >= 2**exponent:
            return f"{three_digits(amount / 2**exponent)} {unit}"
    return f"{amount:.0f} B"


def three_digits(value: float) -> str:
    """Write a number from 1 on with three digits, or all that are before its point."""
    for limit, decimals in ((99.95, 0), (9.995, 1)):
        if value >= limit:
            return f"{value:.{decimals}f}"
    return f"{value:.2f}"
