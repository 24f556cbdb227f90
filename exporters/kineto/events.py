"""The events of a trace, as pieces of text.

Pieces, not objects: a hundred thousand events are written in under a second. Each
event begins with the comma behind the one before; all are joined at the very end.
"""

from __future__ import annotations

from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as quoted

import numpy as np
from numpy.typing import NDArray

from perfc.exporters.kineto.rank import Lane

__all__ = [
    "arrow_end",
    "arrow_start",
    "arrows",
    "events",
    "microseconds",
    "quoted",
    "slice_start",
]


def events(starts: Sequence[str], *columns: Sequence[str]) -> list[str]:
    """Return the pieces of a table of events, row by row.

    Args:
        starts: What each event begins with.
        columns: What follows, for each event; one `str` is the same for all.

    """
    count, width = len(starts), 1 + len(columns)
    pieces = [""] * (count * width)
    for place, column in enumerate((starts, *columns)):
        pieces[place::width] = [column] * count if isinstance(column, str) else column
    return pieces


def arrows(
    starts: Sequence[str], times: Sequence[str], numbers: Sequence[str]
) -> list[str]:
    """Return the pieces of one end of each arrow; its two ends have one number."""
    return events(starts, times, ',"id":', numbers, "}")


def microseconds(nanoseconds: NDArray[np.int64]) -> list[str]:
    """Return times of no less than zero as text, exact to the nanosecond.

    All are written at once, digit by digit, in a third of the time of one by one.
    """
    width = len(str(nanoseconds.max(initial=1000)))
    # A row for each digit, one for the point, and blanks in front of every number.
    text = np.full((width + 2, len(nanoseconds)), ord(" "), dtype=np.uint8)
    text[-4] = ord(".")
    rest = nanoseconds
    for place in (-1, -2, -3, *range(-5, -width - 2, -1)):
        rest, digit = np.divmod(rest, 10)
        text[place] = ord("0") + digit
    leading = nanoseconds < 10 ** np.arange(width - 1, 3, -1)[:, None]
    text[1:-5][leading] = ord(" ")
    return text.tobytes("F").decode().split()


def slice_start(category: str, name: str, lane: Lane) -> str:
    """Return a slice's beginning; its time, duration and arguments follow."""
    return (
        f',\n{{"ph":"X","cat":"{category}","name":{quoted(name)},'
        f'"pid":{lane.pid},"tid":{lane.tid},"ts":'
    )


def arrow_start(category: str, lane: Lane) -> str:
    """Return the beginning of an arrow's start; its time and number follow.

    An end of an arrow belongs to the slice that starts at its time on its lane.
    """
    return (
        f',\n{{"ph":"s","cat":"{category}","name":"{category}",'
        f'"pid":{lane.pid},"tid":{lane.tid},"ts":'
    )


def arrow_end(category: str, lane: Lane) -> str:
    """Return the beginning of an arrow's end; its time and number follow."""
    return (
        f',\n{{"ph":"f","bp":"e","cat":"{category}","name":"{category}",'
        f'"pid":{lane.pid},"tid":{lane.tid},"ts":'
    )
