"""Listeners to progress that keep what they hear."""

from __future__ import annotations

import attrs


@attrs.frozen
class Heard:
    """Keeps what it is told.

    Attributes:
        live: Whether it looks while work goes on.
        counts: What, how many are done, of how many.
        shares: What, and which part of it is done.

    """

    live: bool = True
    counts: list[tuple[str, int, int]] = attrs.field(factory=list[tuple[str, int, int]])
    shares: list[tuple[str, float]] = attrs.field(factory=list[tuple[str, float]])

    def count(self, what: str, done: int, total: int) -> None:
        """Keep a count."""
        self.counts.append((what, done, total))

    def share(self, what: str, part: float) -> None:
        """Keep a share."""
        self.shares.append((what, part))
