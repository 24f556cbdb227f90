"""Sizes of tables and memories, as plans' reports and errors write them."""

from __future__ import annotations

_SMALLEST_GB = 1e8
"""Less is written in megabytes, so that small tables are not 0.0 GB."""


def size_text(amount_bytes: float) -> str:
    """Write bytes in gigabytes, or megabytes."""
    if 0 < amount_bytes < _SMALLEST_GB:
        return f"{amount_bytes / 1e6:,.3f} MB"
    return f"{amount_bytes / 1e9:,.1f} GB"
