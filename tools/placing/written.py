"""Placements as Markdown and as CSV."""

from __future__ import annotations

import csv
import io

from perfc.tools.placing import report

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""What a cell begins with that a spreadsheet runs."""


def markdown_text(found: report.Placement) -> str:
    """Return the tables as GitHub draws them, one below the other."""
    parts = [
        f"## {_escaped(report.title(found).splitlines()[0])}",
        *map(_escaped, report.title(found).splitlines()[1:]),
        _table(report.plan_lines(found)),
        *map(_escaped, report.notes(found)),
        f"### Tiers under {found.best.name}",
        _table(report.tier_lines(found.best)),
        f"### Tables under {found.best.name}",
        _table(report.table_lines(found.best)),
    ]
    remarks = [
        f"- {one.level.value}: {_escaped(one.message)}" for one in found.diagnostics
    ]
    return "\n\n".join([*parts, *(["\n".join(remarks)] if remarks else [])]) + "\n"


def _table(lines: report.Lines) -> str:
    heading, *rows = lines
    written = [heading, ("---",) * len(heading), *rows]
    return "\n".join(f"| {' | '.join(map(_escaped, row))} |" for row in written)


def _escaped(text: str) -> str:
    """Take away the meaning that Markdown gives to characters of names."""
    return "".join(f"\\{letter}" if letter in "|*_`<\\[" else letter for letter in text)


def csv_text(found: report.Placement) -> str:
    """Return a line for each table of each plan."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for number, row in enumerate(
        [("plan", plan.name), *entry.items()]
        for plan in found.ranked
        for entry in report.table_entries(plan)
    ):
        if not number:
            writer.writerow([name for name, _ in row])
        writer.writerow([_cell(value) for _, value in row])
    return text.getvalue()


def _cell(value: object) -> object:
    is_formula = isinstance(value, str) and value.startswith(_FORMULAS)
    return f"'{value}" if is_formula else value
