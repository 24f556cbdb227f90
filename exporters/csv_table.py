"""The format `csv`: one row per node, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from perfc.tools import NODE_KEYS, Exporter, Report


class CsvTable(Exporter):
    """The `nodes` of reports, with the target in the first column.

    Columns are always the same, in the same order; times are in microseconds.
    """

    holds_several: ClassVar[bool] = True

    def export(self, reports: Sequence[Report], path: Path | None) -> str:
        """Return the header and the rows, report after report."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("target", *NODE_KEYS))
        for report in reports:
            for node in report.nodes:
                writer.writerow((report.target.name, *map(node.__getitem__, NODE_KEYS)))
        return text.getvalue()
