"""A sweep as a page: the front of two metrics, time over what varied, and the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from perfc.ir import Diagnostic
from perfc.tools import pages
from perfc.tools.sweeping.axes import TARGET, Axis
from perfc.tools.sweeping.result_file import PAGE_ELEMENT
from perfc.tools.sweeping.selection import best, best_first, front, known, lead
from perfc.tools.sweeping.space import ERROR, INTERVAL, Row, Space
from perfc.tools.sweeping.sweep_table import (
    cell_text,
    heading,
    shown_columns,
)
from perfc.tools.sweeping.varied import Value

_MOST_ROWS = 1000
"""More are slow to sort in a browser; the rows are all in the page's JSON."""

_LOGARITHMIC = 20
"""A column is drawn by its logarithm where its largest value is so often the least."""

_ACROSS, _UP = 640, 300
"""Points that fall on one of so many places are drawn once."""

_UNITS = {"time_us": "us", "device_only_us": "us", "peak_memory_bytes": "bytes"}


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
    parts: list[pages.Part] = [
        _heading(space, rows, priced),
        pages.Remarks(remarks),
        *_pareto(space, priced),
        *_over_each(space, priced),
        pages.Section("Configurations", [_table(space, rows, priced)]),
        pages.Data(PAGE_ELEMENT, document),
    ]
    return pages.page(f"perfc sweep: {_name(space)}", parts)


def _heading(space: Space, rows: Sequence[Row], priced: Sequence[Row]) -> pages.Heading:
    metric, refused = lead(priced, space.metrics), len(rows) - len(priced)
    counted = f"{len(rows):,} of {len(space):,} configurations"
    badges: list[pages.Badge] = [(f"{refused:,} cannot be", "bad")] if refused else []
    varied = f"varied: {', '.join(axis.column for axis in space.axes)}"
    top = best(priced, metric, 1)
    if not top or metric == "fits":
        asked = (varied, ", ".join(space.names))
        return pages.Heading(
            f"Sweep of {_name(space)}", (counted, *asked), badges=badges
        )
    (row,) = top
    setting = ", ".join(f"{name} {cell_text(row, name)}" for name in space.varied)
    interval = " to ".join(cell_text(row, name) for name in INTERVAL)
    if row.get("fits") is False:
        badges.append(("does not fit in memory", "bad"))
    return pages.Heading(
        f"Sweep of {_name(space)}",
        asked=(counted, varied, ", ".join(space.names)),
        answer=cell_text(row, metric),
        label=f"Best {heading(metric)}, at {setting}:",
        remark=f"90 % interval of the time {interval}",
        badges=badges,
    )


def _name(space: Space) -> str:
    return str(getattr(space.request.model, "name", space.request.model))


def _pareto(space: Space, rows: Sequence[Row]) -> Iterator[pages.Part]:
    """Draw the first metric and the next one that is known, with what none beats."""
    numbers = [m for m in space.metrics if m != "fits" and known(rows, (m,))]
    if len(numbers) < 2:  # noqa: PLR2004 - a front is between two
        return
    first, *others = numbers
    second = "peak_memory_bytes" if "peak_memory_bytes" in others else others[0]
    complete = known(rows, (first, second))
    best_rows = front(complete, (first, second))
    places = sorted((float(row[second]), float(row[first])) for row in best_rows)
    chart = pages.Chart(
        _axis(second, [float(row[second]) for row in complete]),
        _axis(first, [float(row[first]) for row in complete]),
        [
            *_points(space, complete, lambda row: float(row[second]), first),
            _line("what nothing beats", places, -1),
        ],
        f"The line is of what nothing beats: {len(best_rows):,} of {len(complete):,}.",
    )
    title = f"{heading(first)} and {heading(second)}"
    yield pages.Section(title[0].upper() + title[1:], [chart])


def _over_each(space: Space, rows: Sequence[Row]) -> Iterator[pages.Part]:
    metric = lead(rows, space.metrics)
    complete = known(rows, (metric,))
    varied = [axis for axis in space.axes if len(axis.values) > 1]
    if not complete or metric == "fits" or not varied:
        return
    note = "Lines join the best of each target"
    if _ends(complete[0], metric):
        note += ", dashes the ends of its 90 % interval"
    charts = [_over(space, complete, axis, metric) for axis in varied]
    name = heading(metric)
    title = f"{name[0].upper()}{name[1:]} over what varies"
    yield pages.Section(title, charts, note=f"{note}.")


def _over(space: Space, rows: Sequence[Row], axis: Axis, metric: str) -> pages.Chart:
    words = [str(value) for value in axis.values] if axis.kind == "str" else []
    places: dict[Value, float] = {
        value: float(number if words else value)
        for number, value in enumerate(axis.values)
    }
    series = _points(space, rows, lambda row: places[row[axis.column]], metric)
    for number, name in enumerate(space.names):
        own = [row for row in rows if row[TARGET] == name]
        series += _best_lines(own, places, axis, metric, number)
    return pages.Chart(
        pages.Axis(
            axis.column, log=not words and _is_wide([*places.values()]), words=words
        ),
        _axis(metric, [float(row[metric]) for row in rows]),
        series,
        f"Each point is a configuration: its {heading(metric)} over {axis.column}.",
    )


def _best_lines(
    rows: Sequence[Row],
    places: Mapping[Value, float],
    axis: Axis,
    metric: str,
    color: int,
) -> Iterator[pages.Series]:
    """Yield the best of a target at each value, and its interval where there is one."""
    tops = [
        (place, top)
        for value, place in sorted(places.items(), key=lambda item: item[1])
        for top in best([r for r in rows if r[axis.column] == value], metric, 1)
    ]
    if not tops:
        return
    name = str(rows[0][TARGET])
    yield _line(f"{name}, best", [(at, float(top[metric])) for at, top in tops], color)
    ends = [(at, two) for at, top in tops if (two := _ends(top, metric))]
    for number, share in enumerate(("5 %", "95 %") if ends else ()):
        line = [(at, two[number]) for at, two in ends]
        yield _line(f"{name}, {share}", line, color, "dashes")


def _ends(row: Row, metric: str) -> tuple[float, float] | None:
    """Return the ends of the interval of a metric; None if it has no interval."""
    low, high = (row[name] for name in INTERVAL)
    if not low or not high:
        return None
    if metric == "time_us":
        return float(low), float(high)
    if metric != "samples_per_s" or row.get("time_us") is None:
        return None
    samples = float(row[metric]) * float(row["time_us"])
    return samples / high, samples / low


def _line(
    name: str,
    places: Sequence[tuple[float, float]],
    color: int,
    drawn: Literal["line", "dashes"] = "line",
) -> pages.Series:
    x, y = [x for x, _ in places], [y for _, y in places]
    return pages.Series(name, x, y, drawn=drawn, color=color)


def _points(
    space: Space, rows: Sequence[Row], across: Callable[[Row], float], metric: str
) -> list[pages.Series]:
    """Return the points of each target; those that fall on one pixel are drawn once."""
    if not rows:
        return []
    right = _pixels([across(row) for row in rows], _ACROSS)
    up = _pixels([float(row[metric]) for row in rows], _UP)
    shown: dict[tuple[str, int, int], Row] = {}
    for row, x, y in zip(rows, right, up, strict=True):
        shown.setdefault((row[TARGET], x, y), row)
    return [
        pages.Series(
            name,
            [across(row) for row in own],
            [float(row[metric]) for row in own],
            notes=[_note(space, row) for row in own],
            color=number,
        )
        for number, name in enumerate(space.names)
        if (own := [row for (target, _, _), row in shown.items() if target == name])
    ]


def _pixels(values: Sequence[float], count: int) -> list[int]:
    scaled = [math.log(value) for value in values] if _is_wide(values) else values
    low, width = min(scaled), max(scaled) - min(scaled)
    return [round(count * (value - low) / width) if width else 0 for value in scaled]


def _note(space: Space, row: Row) -> str:
    columns = shown_columns(space, [row])
    return ", ".join(f"{heading(c)} {cell_text(row, c)}" for c in columns)


def _axis(metric: str, values: Sequence[float]) -> pages.Axis:
    return pages.Axis(heading(metric), _UNITS.get(metric, ""), log=_is_wide(values))


def _is_wide(values: Sequence[float]) -> bool:
    low, high = min(values), max(values)
    return low > 0 and high / low > _LOGARITHMIC


def _table(space: Space, rows: Sequence[Row], priced: Sequence[Row]) -> pages.Table:
    columns = shown_columns(space, priced)
    if "time_us" in columns:
        place = columns.index("time_us") + 1
        columns[place:place] = [name for name in INTERVAL if name not in columns]
    if len(priced) < len(rows):
        columns.append(ERROR)
    shown = best_first(rows, space.metrics)[:_MOST_ROWS]
    return pages.Table(
        [heading(column) for column in columns],
        [[_cell(row, column) for column in columns] for row in shown],
        name="Configurations",
        search=True,
        order="best",
        total=len(rows),
    )


def _cell(row: Row, column: str) -> str | pages.Cell:
    value, text = row[column], cell_text(row, column)
    is_number = isinstance(value, int | float)
    return pages.Cell(text, float(value)) if is_number else text
