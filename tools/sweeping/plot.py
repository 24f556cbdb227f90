"""Scatter plots as inline SVG: points, and a line for each group."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import NamedTuple

_WIDTH, _HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 150, 14, 46
_TICKS, _MOST_TICKS = 5, 8
_LOGARITHMIC = 20
"""A column is drawn by its logarithm where its largest value is so often the least."""

COLORS = ("#4878a8", "#d1615d", "#6a9f58", "#a87c9f", "#d98b3a", "#85b6b2", "#967662")


class Point(NamedTuple):
    """A point.

    Attributes:
        x: Where to the right; of a column of words, which of them.
        y: Where up.
        group: Which colour it has.
        note: What it says when it is pointed at.

    """

    x: float
    y: float
    group: int
    note: str


class Line(NamedTuple):
    """A line through some places.

    Attributes:
        places: Its corners, x and y.
        group: Which colour it has.

    """

    places: Sequence[tuple[float, float]]
    group: int


class Ruler:
    """One direction of a plot.

    Args:
        title: What is drawn along it.
        values: All that is; where they are few, the ruler is marked at them.
        written: Writes a value.
        words: The words of a column of words; empty of one of numbers.

    """

    def __init__(
        self,
        title: str,
        values: Sequence[float],
        written: Callable[[float], str],
        words: Sequence[str] = (),
    ) -> None:
        """Measure."""
        self.title, self._written, self._words = title, written, words
        low, high = min(values), max(values)
        self._marks = sorted(set(values))
        self._log = not words and low > 0 and high / low > _LOGARITHMIC
        self._low, high = self._scaled(low), self._scaled(high)
        if words:
            self._low, high = -0.5, len(words) - 0.5
        self._range = high - self._low
        if not self._range:
            self._low, self._range = self._low - 0.5, 1.0

    def share(self, value: float) -> float:
        """Return how far along the ruler a value is, from 0 to 1."""
        return (self._scaled(value) - self._low) / self._range

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Yield places along the ruler, and what stands there."""
        if self._words:
            for number, word in enumerate(self._words):
                yield self.share(number), word
            return
        if len(self._marks) <= _MOST_TICKS:
            for value in self._marks:
                yield self.share(value), self._written(value)
            return
        for number in range(_TICKS):
            share = number / (_TICKS - 1)
            value = self._low + share * self._range
            yield share, self._written(math.exp(value) if self._log else value)

    def _scaled(self, value: float) -> float:
        return math.log(value) if self._log else value


def scatter(
    across: Ruler,
    up: Ruler,
    points: Sequence[Point],
    lines: Sequence[Line],
    groups: Sequence[str],
) -> Iterator[str]:
    """Yield a picture; points that fall on one pixel are drawn once."""
    yield f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
    yield from _frame(across, up)
    yield from _legend(groups)
    for line in lines:
        corners = " ".join(
            f"{_x(across, x):.1f},{_y(up, y):.1f}" for x, y in line.places
        )
        color = COLORS[line.group % len(COLORS)]
        yield f'<polyline points="{corners}" fill="none" stroke="{color}"/>'
    seen: set[tuple[int, int, int]] = set()
    for point in points:
        x, y = _x(across, point.x), _y(up, point.y)
        pixel = (round(x), round(y), point.group)
        if pixel in seen:
            continue
        seen.add(pixel)
        color = COLORS[point.group % len(COLORS)]
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{color}" '
            f'fill-opacity=".55"><title>{escape(point.note)}</title></circle>'
        )
    yield "</svg>"


def _x(ruler: Ruler, value: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * ruler.share(value)


def _y(ruler: Ruler, value: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * ruler.share(value)


def _frame(across: Ruler, up: Ruler) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for share, text in across.ticks():
        x = _LEFT + (right - _LEFT) * share
        yield _grid_line(x, x, _TOP, bottom)
        yield _text(x, bottom + 16, text, "middle")
    for share, text in up.ticks():
        y = bottom - (bottom - _TOP) * share
        yield _grid_line(_LEFT, right, y, y)
        yield _text(_LEFT - 6, y + 4, text, "end")
    yield _text((_LEFT + right) / 2, _HEIGHT - 8, across.title, "middle")
    middle = (_TOP + bottom) / 2
    turned = f'transform="rotate(-90 12 {middle:.0f})"'
    yield (
        f'<text x="12" y="{middle:.0f}" text-anchor="middle" {turned}>'
        f"{escape(up.title)}</text>"
    )


def _grid_line(left: float, right: float, top: float, bottom: float) -> str:
    across = f'x1="{left:.1f}" x2="{right:.1f}"'
    return f'<line class="grid" {across} y1="{top:.1f}" y2="{bottom:.1f}"/>'


def _legend(groups: Sequence[str]) -> Iterator[str]:
    x = _WIDTH - _RIGHT + 12
    for number, name in enumerate(groups):
        y = _TOP + 16 * number
        color = COLORS[number % len(COLORS)]
        yield f'<rect x="{x}" y="{y}" width="9" height="9" fill="{color}"/>'
        yield _text(x + 14, y + 9, name, "start")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    shown = escape(text if len(text) <= 22 else f"{text[:21]}…")  # noqa: PLR2004 - letters that fit
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{shown}</text>'
