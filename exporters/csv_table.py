"""The format `csv`: one row per node, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from perfc.tools import NODE_KEYS, Exporter, Report

_FORMULAS = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "\r",
    "\n",
    "\uff1d",
    "\uff0b",
    "\uff0d",
    "\uff20",
)
"""What a text begins with that spreadsheets run; the full-width signs, too
(https://owasp.org/www-community/attacks/CSV_Injection)."""


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
                cells = (report.target.name, *map(node.__getitem__, NODE_KEYS))
                writer.writerow(map(_cell, cells))
        return text.getvalue()


def _cell(value: object) -> object:
    """Return a cell that a spreadsheet shows: names are no formulas."""
    is_formula = isinstance(value, str) and value.startswith(_FORMULAS)
    return f"'{value}" if is_formula else value
