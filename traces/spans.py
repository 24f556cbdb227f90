"""Stretches of time."""

from __future__ import annotations

from collections.abc import Iterable


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of spans, (start, end)."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total
