"""Stretches of time."""

from __future__ import annotations

from collections.abc import Iterable

_ROUNDING = 1e-6
"""Microseconds by which sums of times may miss each other."""


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of spans, (start, end)."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total


def joined(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return spans in order, those that touch or overlap as one."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1] + _ROUNDING:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found
