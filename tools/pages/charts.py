"""Charts of pages: lines and points over two axes, drawn by uPlot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Literal

import attrs

from perfc.ir.support import Json
from perfc.tools.pages.part import Part, json_script


@attrs.frozen
class Axis:
    """One direction of a chart.

    Attributes:
        title: What is drawn along it.
        unit: How its numbers are written: `us` (as times), `bytes`, or a unit that gets
            decimal prefixes, as `FLOP/s`; empty for plain numbers.
        log: Whether it is logarithmic; all numbers are then above 0.
        words: The words of a column of words, by the numbers from 0 on.

    """

    title: str
    unit: str = ""
    log: bool = False
    words: Sequence[str] = ()

    @property
    def document(self) -> Json:
        """What the script of the page draws."""
        return attrs.asdict(self)


@attrs.frozen
class Series:
    """Points, or a line through them.

    Attributes:
        name: What the legend calls it.
        x: Where to the right.
        y: Where up, as many.
        drawn: How. Areas step, have the same x, and lie on those after them.
        notes: What each point says beside its numbers when it is pointed at.
        color: Number of its colour; -1 is grey.
        sizes: How large each point is drawn, from 0 to 1; empty: all alike.
        label: Where a line has its name, which the legend then leaves out; "" nowhere.

    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    drawn: Literal["points", "line", "steps", "dashes", "area"] = "points"
    notes: Sequence[str] = ()
    color: int = 0
    sizes: Sequence[float] = ()
    label: Literal["", "start", "end"] = ""

    @property
    def document(self) -> Json:
        """What the script of the page draws."""
        return {
            "sizes": [round(one, 3) for one in self.sizes],
            "name": self.name,
            "x": [*map(_short, self.x)],
            "y": [*map(_short, self.y)],
            "drawn": self.drawn,
            "notes": self.notes,
            "color": self.color,
            "label": self.label,
        }


@attrs.frozen
class Chart(Part):
    """Series over two axes, with a legend; points say what they are.

    Attributes:
        x: What is to the right.
        y: What is up.
        series: What is drawn.
        text: What it shows, in words, for people who cannot see it.
        height: In pixels.

    """

    x: Axis
    y: Axis
    series: Sequence[Series]
    text: str
    height: int = 320

    @property
    def name(self) -> str:
        """What it is called where it stands alone."""
        return f"{self.y.title} over {self.x.title}".capitalize()

    def html(self) -> Iterator[str]:
        """Yield a figure, whose data the script of the page draws."""
        data = {
            "x": self.x.document,
            "y": self.y.document,
            "series": [one.document for one in self.series],
            "height": self.height,
        }
        yield '<figure class="chart">'
        what = f"Chart of {self.y.title} over {self.x.title}"
        yield f'<p class="above">{escape(self.y.title)}</p>'
        yield f'<div class="plot" role="img" aria-label="{escape(what)}"></div>'
        yield '<ul class="legend"></ul>'
        yield f"<figcaption>{escape(self.text)}</figcaption>"
        yield f"{json_script(data)}</figure>"


def _short(value: float) -> float:
    """Return a number with as many digits as a picture needs."""
    if not math.isfinite(value):
        msg = f"{value} cannot be drawn"
        raise ValueError(msg)
    return int(value) if value == int(value) else float(f"{value:.6g}")
