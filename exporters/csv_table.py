"""The format `csv`: one row per node, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from perfc import tools
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

    What compares several reports is a row a report.
    Columns are always the same, in the same order; times are in microseconds.
    """

    holds_several: ClassVar[bool] = True

    def export(self, reports: Sequence[Report], path: Path | None) -> str:
        """Return the header and the rows, report after report."""
        rows = (
            (report.target.name, *map(node.__getitem__, NODE_KEYS))
            for report in reports
            for node in report.nodes
        )
        return _document(("target", *NODE_KEYS), rows)

    def compared(self, reports: Sequence[Report]) -> str:
        """Return the entries of a comparison; unknown numbers are empty."""
        entries = tools.Comparison(reports).entries
        return _document(entries[0], (entry.values() for entry in entries))


def _document(heading: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows(map(_cell, row) for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    """Return a cell that a spreadsheet shows: names are no formulas."""
    is_formula = isinstance(value, str) and value.startswith(_FORMULAS)
    return f"'{value}" if is_formula else value
