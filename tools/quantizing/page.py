"""Plans of precision as a page, as Markdown, and as rows of a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from html import escape

from perfc.tools.quantizing.report import Quantization, frontier_table, plan_table
from perfc.tools.reports import PAGE_STYLE

Table = Sequence[Sequence[str]]


def quantized_page(found: Quantization) -> str:
    """Return the page; it loads nothing from anywhere."""
    title = escape(f"perfc quantize: {found.best.report.model.name}")
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        f"<title>{title}</title><style>{PAGE_STYLE}</style></head><body>",
        f"<h1>{title}</h1><p>on {escape(found.target.name)}</p>",
        *_html_table(plan_table(found)),
    ]
    if found.frontier:
        parts += ["<h2>Time against loss</h2>"]
        parts += _html_table(frontier_table(found.frontier))
    if kept := found.best.kept:
        parts += ["<h2>Kept</h2>"]
        listed = [(one.name, one.dtype, one.reason) for one in kept]
        parts += _html_table([("op", "type", "reason"), *listed])
    told = [f"{one.level.value}: {one.message}" for one in found.diagnostics]
    if told:
        parts += ["<h2>Remarks</h2><ul>", *(f"<li>{escape(t)}" for t in told), "</ul>"]
    return "\n".join([*parts, "</body></html>\n"])


def _html_table(rows: Table) -> Iterator[str]:
    yield "<table>"
    for number, row in enumerate(rows):
        cell = "td" if number else "th"
        yield "<tr>" + "".join(f"<{cell}>{escape(text)}" for text in row) + "</tr>"
    yield "</table>"


def quantized_markdown(found: Quantization) -> str:
    """Return the tables in Markdown."""
    parts = [_markdown(plan_table(found))]
    if found.frontier:
        parts.append(_markdown(frontier_table(found.frontier)))
    parts += [f"{one.level.value}: {one.message}" for one in found.diagnostics]
    return "\n\n".join(parts) + "\n"


def _markdown(rows: Table) -> str:
    heading, *rest = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([heading, "|" + "---|" * len(rows[0]), *rest])


def quantized_csv(found: Quantization) -> str:
    """Return a row for each plan."""
    text = io.StringIO()
    rows = found.rows
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
