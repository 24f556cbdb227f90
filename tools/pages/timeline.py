"""The timeline of a page: boxes in lanes, to zoom into and to search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.ir.support import Json
from perfc.tools.pages.part import Part, json_script

Integers: TypeAlias = NDArray[np.int64]

MOST_BYTES = 650_000
"""Data of a timeline that keeps a page small; short neighbours become one for it."""

_SLICE_BYTES = 18
"""About what a box takes, without its name."""

_FEWER = 0.75
"""Share of the boxes that is tried next where data is too large, down to `_LEAST`."""

_LEAST = 200


@attrs.frozen(eq=False)
class Slices:
    """Boxes of a lane, in order, none before the end of the one ahead of it.

    Attributes:
        name: Number of the name of each, in `Timeline.names`.
        kind: Number of the kind of each, in `Timeline.kinds`.
        start_ns: When it begins.
        end_ns: When it ends.

    """

    name: Integers
    kind: Integers
    start_ns: Integers
    end_ns: Integers


@attrs.frozen(eq=False)
class TimelineLane:
    """A thread or a stream.

    Attributes:
        label: What it is called.
        slices: What runs there.
        summed: Whether the legend counts its time.

    """

    label: str
    slices: Slices
    summed: bool = True


@attrs.frozen(eq=False)
class Timeline(Part):
    """Lanes over time.

    Attributes:
        lanes: From above.
        names: Names of boxes.
        kinds: What they are.
        colors: Number of the colour of each kind, from 0 to 8; the last is grey.
        text: What it shows, in words, for people who cannot see it.
        most_bytes: How much data there may be.

    """

    lanes: Sequence[TimelineLane]
    names: Sequence[str]
    kinds: Sequence[str]
    colors: Sequence[int]
    text: str
    most_bytes: int = MOST_BYTES

    @property
    def name(self) -> str:
        """What it is called where it stands alone."""
        return "Over time"

    def html(self) -> Iterator[str]:
        """Yield a figure with its controls, whose data the script of the page draws."""
        own = sum(len(lane.slices.name) for lane in self.lanes)
        data, held = self._fitting(own)
        yield '<figure class="timeline"><div class="tools">'
        yield (
            '<input type="search" aria-label="Search the timeline by name" '
            'placeholder="Search by name">'
        )
        for action, sign, label in _BUTTONS:
            yield (
                f'<button type="button" data-do="{action}" title="{label}" '
                f'aria-label="{label}">{sign}</button>'
            )
        yield '<span class="dim found" role="status"></span></div>'
        yield (
            f'<div class="plot" tabindex="0" role="application" '
            f'aria-label="{escape(self.text)} {_KEYS}"></div>'
            f'<ul class="legend"></ul>'
        )
        merged = ""
        if held < own:
            merged = f" {own:,} boxes are drawn as {held:,}: short neighbours as one."
        yield f"<figcaption>{escape(self.text)}{merged} {_MOUSE}</figcaption>"
        yield f"{data}</figure>"

    def _fitting(self, own: int) -> tuple[str, int]:
        """Return data that is not too large, and how many boxes are in it."""
        most = min(own, self.most_bytes // _SLICE_BYTES)
        while True:
            share = min(1.0, most / max(own, 1))
            kept = [_merged(lane.slices, share) for lane in self.lanes]
            data = json_script(self._document(kept))
            if len(data) <= self.most_bytes or most < _LEAST:
                return data, sum(len(slices.name) for slices, _ in kept)
            most = int(_FEWER * most)

    def _document(self, kept: Sequence[tuple[Slices, Integers]]) -> Json:
        """Return the data that the script of the page draws, with names it needs."""
        used = np.unique(np.concatenate([slices.name for slices, _ in kept]))
        number = np.zeros(len(self.names), np.int64)
        number[used] = np.arange(len(used))
        return {
            "names": [self.names[name] for name in used.tolist()],
            "kinds": self.kinds,
            "colors": self.colors,
            "lanes": [
                {
                    "label": lane.label,
                    "summed": lane.summed,
                    "name": number[slices.name].tolist(),
                    **_columns(slices, merged),
                }
                for lane, (slices, merged) in zip(self.lanes, kept, strict=True)
            ],
        }


_BUTTONS = (
    ("next", "Next match", "Show the next match"),
    ("in", "+", "Zoom in"),
    ("out", "\N{MINUS SIGN}", "Zoom out"),
    ("left", "\N{LEFTWARDS ARROW}", "Earlier"),
    ("right", "\N{RIGHTWARDS ARROW}", "Later"),
    ("all", "All", "Show the whole step"),
)
_KEYS = "Keys: + and - zoom, arrows move, 0 shows all, N the next match."
_MOUSE = "Drag or turn the wheel to zoom; a double click shows all."


def _merged(slices: Slices, share: float) -> tuple[Slices, Integers]:
    """Return at most about so large a share of the slices, and how many each is of.

    Neighbours that together are shorter than some time become one, named after the
    first; the time is doubled until they are few enough.
    """
    count = len(slices.name)
    most = max(int(share * count), 1)
    firsts = np.arange(count)
    if count > most:
        step_ns = max(int(np.max(slices.end_ns)) // (8 * most), 1)
        while len(firsts) > most:
            firsts = _first_of_each(slices, step_ns)
            step_ns *= 2
    lasts = np.append(firsts[1:], count) - 1
    merged = Slices(
        slices.name[firsts],
        slices.kind[firsts],
        slices.start_ns[firsts],
        slices.end_ns[lasts] if count else slices.end_ns,
    )
    return merged, lasts - firsts + 1 if count else firsts


def _first_of_each(slices: Slices, step_ns: int) -> Integers:
    step = slices.end_ns // step_ns
    long = slices.end_ns - slices.start_ns >= step_ns
    new = np.ones(len(step), np.bool_)
    new[1:] = (step[1:] != step[:-1]) | long[1:] | long[:-1]
    return np.flatnonzero(new)


def _columns(slices: Slices, merged: Integers) -> Json:
    """Return columns of small numbers: each box starts so long after the last ends."""
    ends = np.append(0, slices.end_ns[:-1]) if len(slices.name) else slices.end_ns
    more = np.flatnonzero(merged > 1)
    return {
        "kind": slices.kind.tolist(),
        "gap": (slices.start_ns - ends).tolist(),
        "ns": (slices.end_ns - slices.start_ns).tolist(),
        "merged": dict(zip(more.tolist(), merged[more].tolist(), strict=True)),
    }
