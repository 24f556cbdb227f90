"""The format `table`: text to read in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from perfc import tools
from perfc.tools import Exporter, Report


class TextTable(Exporter):
    """The time, where it goes, and why, as `print(report)` shows it."""

    holds_several: ClassVar[bool] = True

    def export(self, reports: Sequence[Report], path: Path | None) -> str:
        """Return the reports one below the other, and of several what compares them."""
        texts = [str(report) for report in reports]
        if len(reports) > 1:
            texts.insert(0, self.compared(reports))
        return "\n".join(texts)

    def compared(self, reports: Sequence[Report]) -> str:
        """Return a row a report, and below where prices come from."""
        return f"{tools.Comparison(reports)}\n"
