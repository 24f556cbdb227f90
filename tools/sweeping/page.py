"""A sweep as a page: the front of two metrics, time over what varied, and the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from perfc.ir import Diagnostic
from perfc.tools.reports import PAGE_SCRIPT, PAGE_STYLE
from perfc.tools.sweeping.axes import TARGET, Axis
from perfc.tools.sweeping.plot import Line, Point, Ruler, scatter
from perfc.tools.sweeping.result_file import embedded
from perfc.tools.sweeping.selection import best, front, known
from perfc.tools.sweeping.space import ERROR, Row, Space
from perfc.tools.sweeping.sweep_table import (
    cell_text,
    heading,
    number_text,
    shown_columns,
)
from perfc.tools.sweeping.varied import Value

_MOST_ROWS = 5000
"""More are slow to sort in a browser; the rows are all in the page's JSON."""

_LARGE = 1e4
"""Numbers from here on have no decimals."""

_PLOT_STYLE = """
.plot { max-width: 46em; } .grid { stroke: var(--line); stroke-width: .5; }
.plots { display: flex; flex-wrap: wrap; gap: 1em; } .plots > * { flex: 1 1 30em; }
"""


def sweep_page(
    space: Space, rows: Sequence[Row], remarks: Sequence[Diagnostic], document: str
) -> str:
    """Return the page; it loads nothing from anywhere.

    Args:
        space: What was swept.
        rows: What was found.
        remarks: What analyses said.
        document: The sweep as JSON, which the page holds.

    """
    priced = [row for row in rows if not row[ERROR]]
    title = escape(f"perfc sweep: {_name(space)}")
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        f"<title>{title}</title><style>{PAGE_STYLE}{_PLOT_STYLE}</style></head><body>",
        f"<h1>{title}</h1><p>{_counted(space, rows, priced)}</p>",
        *_pareto(space, priced),
        *_over_each(space, priced),
        *_table(space, rows, priced),
    ]
    if remarks:
        told = (f"{one.level.value}: {one.message} [{one.code}]" for one in remarks)
        parts += ["<h2>Remarks</h2><ul>", *(f"<li>{escape(t)}</li>" for t in told)]
        parts += ["</ul>"]
    return "\n".join(
        [*parts, embedded(document), f"<script>{PAGE_SCRIPT}</script></body></html>\n"]
    )


def _counted(space: Space, rows: Sequence[Row], priced: Sequence[Row]) -> str:
    refused = len(rows) - len(priced)
    return f"{len(rows):,} of {len(space):,} configurations; {refused:,} cannot be"


def _name(space: Space) -> str:
    return str(getattr(space.request.model, "name", space.request.model))


def _pareto(space: Space, rows: Sequence[Row]) -> Iterator[str]:
    """Draw the first metric and the next one that is known, with what none beats."""
    numbers = [m for m in space.metrics if m != "fits" and known(rows, (m,))]
    if len(numbers) < 2:  # noqa: PLR2004 - a front is between two
        return
    first, *others = numbers
    second = "peak_memory_bytes" if "peak_memory_bytes" in others else others[0]
    complete = known(rows, (first, second))
    points = [
        _point(space, row, float(row[second]), float(row[first])) for row in complete
    ]
    best_rows = front(complete, (first, second))
    places = sorted((float(row[second]), float(row[first])) for row in best_rows)
    yield f"<h2>{escape(heading(first))} and {escape(heading(second))}</h2>"
    yield f'<p class="note">The line is of what nothing beats: {len(best_rows):,}.</p>'
    across = _ruler(second, [float(row[second]) for row in complete])
    up = _ruler(first, [float(row[first]) for row in complete])
    grey = Line(places, len(space.names))
    yield from scatter(across, up, points, [grey], space.names)


def _over_each(space: Space, rows: Sequence[Row]) -> Iterator[str]:
    metric = space.metrics[0]
    complete = known(rows, (metric,))
    varied = [axis for axis in space.axes if len(axis.values) > 1]
    if not complete or metric == "fits" or not varied:
        return
    yield f"<h2>{escape(heading(metric))} over what varies</h2>"
    yield '<p class="note">Lines join the best of each target.</p><div class="plots">'
    for axis in varied:
        yield "<div>"
        yield from _over(space, complete, axis, metric)
        yield "</div>"
    yield "</div>"


def _over(space: Space, rows: Sequence[Row], axis: Axis, metric: str) -> Iterator[str]:
    words = [str(value) for value in axis.values] if axis.kind == "str" else []
    places: dict[Value, float] = {
        value: float(number if words else value)
        for number, value in enumerate(axis.values)
    }
    points = [
        _point(space, row, places[row[axis.column]], float(row[metric])) for row in rows
    ]
    lines: list[Line] = []
    for number, name in enumerate(space.names):
        own = [row for row in rows if row[TARGET] == name]
        corners = [
            (place, float(top[metric]))
            for value, place in sorted(places.items(), key=lambda item: item[1])
            for top in best([r for r in own if r[axis.column] == value], metric, 1)
        ]
        lines.append(Line(corners, number))
    across = Ruler(axis.column, sorted(places.values()), _plain, words)
    up = _ruler(metric, [float(row[metric]) for row in rows])
    yield from scatter(across, up, points, lines, space.names)


def _point(space: Space, row: Row, x: float, y: float) -> Point:
    columns = shown_columns(space, [row])
    note = ", ".join(f"{heading(c)} {cell_text(row, c)}" for c in columns)
    return Point(x, y, space.names.index(row[TARGET]), note)


def _ruler(metric: str, values: Sequence[float]) -> Ruler:
    return Ruler(heading(metric), values, lambda value: number_text(metric, value))


def _plain(value: float) -> str:
    return f"{value:,.4g}" if value < _LARGE else f"{value:,.0f}"


def _table(space: Space, rows: Sequence[Row], priced: Sequence[Row]) -> Iterator[str]:
    columns = [*shown_columns(space, priced), ERROR]
    shown = rows
    if len(rows) > _MOST_ROWS:
        shown = best(priced, space.metrics[0], _MOST_ROWS)
    yield "<h2>Configurations</h2>"
    if len(shown) < len(rows):
        yield f'<p class="note">The {len(shown):,} best of {len(rows):,}.</p>'
    headings = "".join(f"<th>{escape(heading(column))}</th>" for column in columns)
    yield f'<table class="nodes"><thead><tr>{headings}</tr></thead><tbody>'
    for row in shown:
        yield f"<tr>{''.join(_cell(row, column) for column in columns)}</tr>"
    yield "</tbody></table>"


def _cell(row: Row, column: str) -> str:
    value, text = row[column], escape(cell_text(row, column))
    if isinstance(value, int | float):
        return f'<td class="number" data-value="{float(value)!r}">{text}</td>'
    return f"<td>{text}</td>"
