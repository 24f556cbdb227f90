"""Parts of answers that are rows: tables that sort, bars, and waterfalls."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import TypeAlias

import attrs

from perfc.tools.pages.part import Part, columns_text, markdown_escaped

MOST_ROWS = 1000
"""More are slow to sort in a browser, and long to read."""


_LONG = 24
"""Cells of more letters are broken into lines."""


@attrs.frozen
class Cell:
    """A cell that is a number.

    Attributes:
        text: How it is written.
        value: What its column is sorted by.

    """

    text: str
    value: float


Row: TypeAlias = "Sequence[str | Cell]"


@attrs.frozen
class Table(Part):
    """Rows under headings that sort them when they are pressed.

    Attributes:
        heading: The headings.
        rows: The rows; of more than `most` the first are shown, and the page says so.
        name: What the table is, for people who hear the page.
        numbers: Columns of text that is written to the right, as numbers are; columns
            of `Cell` are so without being named.
        search: Whether rows can be searched for.
        most: How many rows are shown.
        order: What the rows are in order of, said where not all are shown.
        total: How many there are, if `rows` are not all.

    """

    heading: Sequence[str]
    rows: Sequence[Row]
    name: str = "table"
    numbers: Sequence[int] = ()
    search: bool = False
    most: int = MOST_ROWS
    order: str = "first"
    total: int = 0

    def html(self) -> Iterator[str]:
        """Yield the table, in a box of its own that scrolls."""
        shown = self.rows[: self.most]
        yield '<div class="table">'
        if self.search:
            label = escape(f"Search: {self.name}")
            yield (
                f'<p class="tools"><input type="search" class="filter" '
                f'aria-label="{label}" placeholder="Search rows">'
                f'<span class="dim" role="status"></span></p>'
            )
        total = max(self.total, len(self.rows))
        if len(shown) < total:
            text = f"The {len(shown):,} {self.order} of {total:,}."
            yield f'<p class="dim">{escape(text)}</p>'
        yield f'<div class="scroll" tabindex="0" role="region" {_label(self.name)}>'
        numbers = self._numbers(shown)
        yield "<table><thead><tr>"
        for column, text in enumerate(self.heading):
            yield _heading(text, is_number=column in numbers)
        yield "</tr></thead><tbody>"
        for row in shown:
            yield "".join(["<tr>", *_cells(row, numbers), "</tr>"])
        yield "</tbody></table></div></div>"

    def printed(self) -> str:
        """Return all rows in columns."""
        return columns_text(self._lines)

    def markdown(self) -> str:
        """Return all rows as GitHub draws them."""
        if not self._lines:
            return ""
        lines = [[*map(markdown_escaped, line)] for line in self._lines]
        lines.insert(1, ["---"] * len(self.heading))
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    @property
    def _lines(self) -> list[list[str]]:
        """The heading and the rows as text."""
        rows = [
            [cell if isinstance(cell, str) else cell.text for cell in row]
            for row in self.rows
        ]
        return [[*self.heading], *rows] if self.heading else rows

    def _numbers(self, shown: Sequence[Row]) -> set[int]:
        columns = {
            column
            for row in shown
            for column, cell in enumerate(row)
            if isinstance(cell, Cell)
        }
        return columns | set(self.numbers)


def _label(name: str) -> str:
    return f'aria-label="{escape(name)}"'


def _heading(text: str, *, is_number: bool) -> str:
    own = ' class="number"' if is_number else ""
    if not text:
        return f"<th{own}></th>"
    button = f'<button type="button">{escape(text)}</button>'
    return f'<th{own} scope="col" aria-sort="none">{button}</th>'


def _cells(row: Row, numbers: set[int]) -> Iterator[str]:
    for column, cell in enumerate(row):
        own = ' class="number"' if column in numbers else ""
        if isinstance(cell, str):
            own = own or (' class="long"' if len(cell) > _LONG else "")
            yield f"<td{own}>{escape(cell)}</td>"
        else:
            yield f'<td data-v="{cell.value:.6g}">{escape(cell.text)}</td>'


@attrs.frozen
class Bar:
    """A part of a whole.

    Attributes:
        label: What it is.
        amount: How much of it there is; what bars are as long as.
        text: The amount, as it is written.
        note: What there is to know of it; its share, say.
        kind: What its colour is for: one of `KINDS`, or empty.
        low: Where an interval of the amount begins; NaN without one.
        high: Where it ends.

    """

    label: str
    amount: float
    text: str
    note: str = ""
    kind: str = ""
    low: float = math.nan
    high: float = math.nan


@attrs.frozen
class Bars(Part):
    """Amounts beside each other, each with a bar.

    Attributes:
        bars: The amounts.
        name: What they are, for people who hear the page.
        heading: Headings of labels, bars, texts and notes; empty for none.

    """

    bars: Sequence[Bar]
    name: str
    heading: Sequence[str] = ()

    def html(self) -> Iterator[str]:
        """Yield a table whose second column is drawn."""
        ends = [b.amount if math.isnan(b.high) else b.high for b in self.bars]
        longest = max([*ends, 0.0]) or 1.0
        yield f'<table class="bars" {_label(self.name)}>'
        if self.heading:
            first, second, *others = map(escape, self.heading)
            yield f'<thead><tr><th scope="col">{first}</th><th>{second}</th>'
            yield "".join(f'<th class="number" scope="col">{o}</th>' for o in others)
            yield "</tr></thead>"
        yield "<tbody>"
        for bar in self.bars:
            yield f'<tr><th scope="row">{escape(bar.label)}</th>'
            yield f'<td class="drawn">{_drawn(bar, longest)}</td>'
            yield f'<td class="number">{escape(bar.text)}</td>'
            yield f'<td class="number dim">{escape(bar.note)}</td></tr>'
        yield "</tbody></table>"


def _drawn(bar: Bar, longest: float) -> str:
    shapes = [_box(0.0, bar.amount / longest, bar.kind)]
    if bar.low <= bar.high:
        left, right = 100 * bar.low / longest, 100 * bar.high / longest
        shapes.append(f'<path class="whisker" d="M{left:.2f} 5H{right:.2f}"/>')
    return _picture(shapes)


def _picture(shapes: Sequence[str]) -> str:
    return (
        '<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f"{''.join(shapes)}</svg>"
    )


_LEAST_WIDTH = 0.3
"""Percent of the picture that the smallest box takes, so that it is seen."""


def _box(left: float, width: float, kind: str) -> str:
    """Return a box: where it begins and how wide it is, as shares of the picture."""
    wide = max(100 * width, _LEAST_WIDTH)
    return (
        f'<rect class="k-{kind or "other"}" x="{100 * left:.2f}" y="0" '
        f'width="{wide:.2f}" height="10"/>'
    )


@attrs.frozen
class Step:
    """A step of a waterfall.

    Attributes:
        label: What it is.
        delta: How much it adds.
        text: That, as it is written.
        note: Why.

    """

    label: str
    delta: float
    text: str
    note: str = ""


@attrs.frozen
class Waterfall(Part):
    """Steps from one amount to another; each begins where the one before it ends.

    Attributes:
        start: Where it begins: label, amount and text.
        steps: The steps, of which some may have been put together.
        end: Where it ends, likewise.
        name: What it is, for people who hear the page.
        heading: What the rows and the reasons are called.

    """

    start: tuple[str, float, str]
    steps: Sequence[Step]
    end: tuple[str, float, str]
    name: str
    heading: tuple[str, str] = ("", "reason")

    def html(self) -> Iterator[str]:
        """Yield a table whose second column is drawn."""
        what, why = self.heading
        yield f'<div class="scroll" tabindex="0" role="region" {_label(self.name)}>'
        yield '<table class="bars waterfall"><thead><tr>'
        yield f'<th scope="col">{escape(what)}</th><th></th>'
        yield '<th class="number" scope="col">change</th>'
        yield f'<th scope="col">{escape(why)}</th></tr></thead><tbody>'
        low, high = self._range
        width = high - low or 1.0
        yield _total(self.start, low, width)
        reached = self.start[1]
        for step in self.steps:
            left = min(reached, reached + step.delta)
            kind = "slower" if step.delta > 0 else "faster"
            box = _box((left - low) / width, abs(step.delta) / width, kind)
            yield f'<tr><th scope="row">{escape(step.label)}</th>'
            yield f'<td class="drawn">{_picture([box])}</td>'
            yield f'<td class="number {kind}">{escape(step.text)}</td>'
            yield f'<td class="dim">{escape(step.note)}</td></tr>'
            reached += step.delta
        yield _total(self.end, low, width)
        yield "</tbody></table></div>"

    @property
    def _range(self) -> tuple[float, float]:
        """What is drawn: all, or the part that has steps, if that is far from 0."""
        reached = [self.start[1], self.end[1]]
        at = self.start[1]
        for step in self.steps:
            at += step.delta
            reached.append(at)
        low, high = min(reached), max(reached)
        begins = low - _BEFORE * (high - low)
        return (begins if high > low and begins > _FAR * high else 0.0), high


_BEFORE = 0.25
"""How much of the totals is drawn where they are cut, in lengths of all steps."""

_FAR = 0.6
"""Share of the highest point above which the lowest one is for totals to be cut."""


def _total(total: tuple[str, float, str], low: float, width: float) -> str:
    label, amount, text = total
    box = _box(0.0, (amount - low) / width, "total")
    return (
        f'<tr class="total"><th scope="row">{escape(label)}</th>'
        f'<td class="drawn">{_picture([box])}</td>'
        f'<td class="number">{escape(text)}</td><td></td></tr>'
    )
