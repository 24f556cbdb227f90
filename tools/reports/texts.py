"""Text that several verbs print."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import cast

from perfc.tools.reports.verb_result import VerbResult


def columns_text(rows: Iterable[Sequence[str]]) -> str:
    """Return left-aligned columns, the last one free."""
    listed = [tuple(row) for row in rows]
    if not listed:
        return ""
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    lines = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        for row in listed
    ]
    return "\n".join(line.rstrip() for line in lines)


def _table(result: VerbResult, title: str) -> str:
    return str(result)


def _json(result: VerbResult, title: str) -> str:
    return result.to_json()


def _csv(result: VerbResult, title: str) -> str:
    """Return the rows, under a line with their keys."""
    text, rows = io.StringIO(), result.rows
    writer = csv.writer(text, lineterminator="\n")
    if rows:
        writer.writerow(rows[0])
    writer.writerows([_plain(cell) for cell in row.values()] for row in rows)
    return text.getvalue()


def _plain(cell: object) -> object:
    if not isinstance(cell, list | tuple):
        return cell
    return " ".join(map(str, cast("Sequence[object]", cell)))


def _md(result: VerbResult, title: str) -> str:
    """Return the table as it is printed, under a heading."""
    return f"# {title}\n\n```text\n{result!s}```\n"


_FORMATS: Mapping[str, Callable[[VerbResult, str], str]] = MappingProxyType(
    {"table": _table, "json": _json, "csv": _csv, "md": _md}
)

RESULT_FORMATS = (*_FORMATS, "html")
"""Formats of results, by name; pages are written by `perfc.tools.charts`."""


def format_result(result: VerbResult, form: str, title: str) -> str:
    """Write a result in one of `RESULT_FORMATS` but `html`."""
    return _FORMATS[form](result, title)
