"""What perfc wants its user to know about an input or an analysis."""

from __future__ import annotations

import enum

import attrs


class Level(enum.Enum):
    """How much a diagnostic matters."""

    NOTE = "note"
    WARNING = "warning"


@attrs.frozen
class Diagnostic:
    """One remark.

    Attributes:
        level: `warning` where the result may be wrong for it.
        code: Stable, for programs: `unknown-op`, `pooling-assumed`, …
        message: For people, one line.
        where: The node, value or file it is about.

    """

    level: Level
    code: str
    message: str
    where: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return it as documents of programs have it."""
        return {**attrs.asdict(self), "level": self.level.value}

    @property
    def line(self) -> str:
        """Level, place and message, as reports of traces print them."""
        return f"{self.level.value}: {self.where}: {self.message}"
