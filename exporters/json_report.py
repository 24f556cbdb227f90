"""The format `json`: `perfc.report/1`, or `perfc.reports/1` for several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from perfc.tools import Exporter, Report, format_json
from perfc.tools import reports as room


class JsonReport(Exporter):
    """Everything that there is to say, for programs."""

    holds_several: ClassVar[bool] = True

    def export(self, reports: Sequence[Report], path: Path | None) -> str:
        """Return the JSON text, keys sorted."""
        if len(reports) == 1:
            return reports[0].to_json()
        documents = [report.to_dict() for report in reports]
        plans = [plan.to_dict() for plan in room.compared(reports)]
        schema = "perfc.reports/1"
        return format_json({"schema": schema, "reports": documents, "plans": plans})
