"""Rows on media that are read by blocks.

Rows of r bytes that lie back to back on blocks of g bytes begin at multiples of
gcd(r, g) inside a block, each as often, so that a row touches on average

    blocks = 1 + (r - gcd(r, g)) / g

of them (exact; derived by counting). Rows that begin at a block each touch ceil(r / g).
"""

from __future__ import annotations

import math

from perfc.ir import PerfcError


def blocks_per_row(row_bytes: int, granularity: int, *, padded: bool = False) -> float:
    """Return how many blocks the read of a row touches, on average.

    Args:
        row_bytes: Of a row; at least 1.
        granularity: Bytes of a block; at least 1.
        padded: Whether each row begins at a block.

    """
    for what, value in (("a row", row_bytes), ("a block", granularity)):
        if value < 1:
            msg = f"{what} of {value} bytes: expected at least 1"
            raise PerfcError(msg)
    if padded:
        return float(-(-row_bytes // granularity))
    return 1 + (row_bytes - math.gcd(row_bytes, granularity)) / granularity


def amplification(row_bytes: int, granularity: int, *, padded: bool = False) -> float:
    """Return bytes that the medium reads over those of the row; at least 1.

    Several rows read as one long one are never more blocks than by themselves, so that
    the amplification of a multiple of a row is at most that of the row.
    """
    blocks = blocks_per_row(row_bytes, granularity, padded=padded)
    return blocks * granularity / row_bytes


def stored_bytes(
    rows: int, row_bytes: int, granularity: int, *, padded: bool = False
) -> int:
    """Return the bytes of a medium that rows take: whole blocks."""
    if padded:
        return rows * -(-row_bytes // granularity) * granularity
    return -(-rows * row_bytes // granularity) * granularity
