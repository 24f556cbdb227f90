"""The format `json`: `perfc.report/1`, or `perfc.reports/1` for several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from perfc import tools
from perfc.tools import Exporter, Report, format_json


class JsonReport(Exporter):
    """Everything that there is to say, for programs."""

    holds_several: ClassVar[bool] = True

    def export(self, reports: Sequence[Report], path: Path | None) -> str:
        """Return the JSON text, keys sorted."""
        if len(reports) == 1:
            return reports[0].to_json()
        documents = [report.to_dict() for report in reports]
        comparison = tools.Comparison(reports)
        document = {
            "schema": "perfc.reports/1",
            "comparison": comparison.entries,
            "diagnostics": [one.to_dict() for one in comparison.diagnostics],
            "reports": documents,
            "plans": [plan.to_dict() for plan in comparison.plans],
        }
        return format_json(document)
