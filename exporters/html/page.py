"""The format `html`: one page that needs nothing else, to look at and to send."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import ClassVar

from perfc import tools
from perfc.exporters.html.timeline import timeline
from perfc.tools import (
    PAGE_SCRIPT,
    PAGE_STYLE,
    Exporter,
    Report,
    format_bytes,
    format_us,
)

_COLUMNS = (
    ("id", "node"),
    ("op", "op"),
    ("module", "module"),
    ("stream", "stream"),
    ("start_us", "start, us"),
    ("duration_us", "time, us"),
    ("slack_us", "slack, us"),
    ("flops", "FLOP"),
    ("bytes", "bytes"),
    ("cost_model", "priced by"),
    ("provenance", "number is"),
    ("on_critical_path", "critical"),
)
_MOST_ROWS = 5000
"""More are slow to sort in a browser; `csv` has them all."""


class HtmlPage(Exporter):
    """Summary, bars, timeline, and a table of nodes that sorts when it is clicked."""

    holds_several: ClassVar[bool] = True

    def export(self, reports: Sequence[Report], path: Path | None) -> str:
        """Return the page; it loads nothing from anywhere."""
        title = escape(f"perfc: {reports[0].model.name}")
        parts = [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            f"<title>{title}</title><style>{PAGE_STYLE}</style></head><body>",
        ]
        if len(reports) > 1:
            rows = tools.comparison_rows(reports)
            parts += ["<section><h1>Targets compared</h1><table>"]
            parts += [_row(row, numbers=()) for row in rows]
            parts += ["</table></section>"]
        for report in reports:
            parts += _section(report)
        parts.append(f"<script>{PAGE_SCRIPT}</script></body></html>\n")
        return "\n".join(parts)


def _section(report: Report) -> Iterator[str]:
    tables = report.tables
    yield f"<section><h1>{escape(tables.title)}</h1><table>"
    for label, value, remark in tables.headline:
        yield _row([label, value, remark], numbers=(1,))
    yield f"</table><p>Bottleneck: {escape(tables.bottleneck)}</p>"
    yield "<h2>Where the time goes (critical path)</h2><table>"
    yield from _bars(tables.breakdown, format_us)
    yield "</table>"
    if tables.loading:
        yield f"<h2>{escape(tables.loading_at)}</h2><table>"
        yield from (_row(row, numbers=range(2, len(row))) for row in tables.loading)
        yield "</table>"
    if tables.phases:
        yield "<h2>Phases of the step</h2><table>"
        yield from (_row(row, numbers=range(1, len(row))) for row in tables.phases)
        at = escape(tables.memory_at)
        yield f"</table><h2>Device memory at its peak: {at}</h2><table>"
        yield from _bars(tables.memory, format_bytes)
        yield "</table>"
    if tables.ranks:
        yield "<h2>Ranks</h2><table>"
        yield from (_row(row, numbers=range(2, len(row))) for row in tables.ranks)
        yield "</table>"
    if tables.to_fix:
        yield "<h2>What to fix next</h2><table>"
        yield from (_row(row, numbers=(3, 4, 5)) for row in tables.to_fix)
        yield "</table>"
    yield from _slopes(report)
    yield "<h2>Timeline</h2>"
    yield from timeline(report)
    yield "<h2>Nodes</h2>"
    yield from _nodes(report)
    yield from _remarks(report)
    yield "</section>"


def _bars(
    rows: Sequence[tuple[str, float, str]], written: Callable[[float], str]
) -> Iterator[str]:
    longest = max((amount for _, amount, _ in rows), default=0.0)
    for label, amount, share in rows:
        cells = _row([label, written(amount), share], numbers=(1, 2))
        yield _with_bar(cells, amount / longest)


def _with_bar(row: str, share: float) -> str:
    """Return a row with a bar behind it, of so much of the longest."""
    bar = f'<td><span class="bar" style="width:{24 * share:.2f}em">'
    return f"{row.removesuffix('</tr>')}{bar}</span></td></tr>"


def _slopes(report: Report) -> Iterator[str]:
    """Return a bar for each number that decides the time, if that was asked for."""
    found = report.sensitivity
    if found is None or not found.shown:
        return
    yield f"<h2>{escape(found.title)}</h2><table>"
    heading, *rows = found.table
    yield _row(heading, numbers=(2, 3))
    longest = max(slope.size for slope in found.shown)
    for slope, cells in zip(found.shown, rows, strict=True):
        yield _with_bar(_row(cells, numbers=(2, 3)), slope.size / longest)
    yield "</table>"


def _row(cells: Iterable[str], numbers: Sequence[int]) -> str:
    written = [
        f'<td class="number">{escape(cell)}</td>'
        if index in numbers
        else f"<td>{escape(cell)}</td>"
        for index, cell in enumerate(cells)
    ]
    return f"<tr>{''.join(written)}</tr>"


def _nodes(report: Report) -> Iterator[str]:
    nodes = report.nodes
    shown = sorted(nodes, key=lambda node: -float(node["duration_us"]))[:_MOST_ROWS]
    if len(shown) < len(nodes):
        yield f'<p class="note">The {len(shown):,} longest of {len(nodes):,}.</p>'
    headings = "".join(f"<th>{escape(heading)}</th>" for _, heading in _COLUMNS)
    yield f'<table class="nodes"><thead><tr>{headings}</tr></thead><tbody>'
    for node in shown:
        yield f"<tr>{''.join(_cell(node[key]) for key, _ in _COLUMNS)}</tr>"
    yield "</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return f"<td>{'yes' if value else ''}</td>"
    if isinstance(value, (int, float)):
        text = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
        return f'<td class="number" data-value="{value!r}">{text}</td>'
    return f"<td>{escape(str(value))}</td>"


def _remarks(report: Report) -> Iterator[str]:
    if report.diagnostics:
        yield "<h2>Remarks</h2><ul>"
        for remark in report.diagnostics:
            text = f"{remark.level.value}: {remark.message} [{remark.code}]"
            yield f"<li>{escape(text)}</li>"
        yield "</ul>"
