"""The formats in which results of verbs are written."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import cast

from perfc.ir.support import printable
from perfc.tools import pages
from perfc.tools.pages import columns_text as columns_text  # noqa: PLC0414 - offered here, too
from perfc.tools.reports.verb_result import Row, VerbResult

RESULT_FORMATS = ("table", "json", "csv", "md", "html")
"""Formats of results, by name."""

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of cells that a spreadsheet runs."""


def format_result(result: VerbResult, form: str, title: str) -> str:
    """Write a result in one of `RESULT_FORMATS`; pages have a title."""
    if form == "table":
        return str(result)
    if form == "json":
        return result.to_json()
    if form == "csv":
        return _csv(result.csv_rows)
    return format_parts(result.parts, form, title)


def format_parts(parts: Sequence[pages.Part], form: str, title: str) -> str:
    """Write parts as `table`, `md` or `html`; pages have a title."""
    if form == "html":
        return pages.answer_page(title, parts)
    if form == "md":
        return printable(pages.markdown_of(parts)) + "\n"
    return pages.text_of(parts) + "\n"


def _csv(rows: Sequence[Row]) -> str:
    """Return rows under a line with their keys."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if rows:
        writer.writerow(rows[0])
    writer.writerows([_plain(cell) for cell in row.values()] for row in rows)
    return text.getvalue()


def _plain(cell: object) -> object:
    if isinstance(cell, str) and cell.startswith(_FORMULAS):
        return f"'{cell}"
    if not isinstance(cell, list | tuple):
        return cell
    return " ".join(map(str, cast("Sequence[object]", cell)))
