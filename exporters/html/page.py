"""The format `html`: one page that needs nothing else, to look at and to send."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from perfc.exporters.html.timeline import timeline
from perfc.tools import Exporter, Report, reports_page


class HtmlPage(Exporter):
    """The answer, and what stands behind it: timeline, roofline, memory, ops."""

    holds_several: ClassVar[bool] = True

    def export(self, reports: Sequence[Report], path: Path | None) -> str:
        """Return the page; it loads nothing from anywhere."""
        drawn = [timeline(report, of=len(reports)) for report in reports]
        return reports_page(reports, drawn)
