"""The events of a trace, as pieces of text.

Pieces, not objects: a hundred thousand events are written in under a second. Each
event begins with the comma behind the one before; all are joined at the very end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from json.encoder import encode_basestring_ascii as quoted

import numpy as np
from numpy.typing import NDArray

from perfc.exporters.trace_rank import Lane

__all__ = [
    "arrow_end",
    "arrow_start",
    "arrows",
    "events",
    "microseconds",
    "quoted",
    "slice_start",
]

_THOUSANDTHS = [f".{number:03}" for number in range(1000)]


def events(starts: Sequence[str], *columns: Sequence[str]) -> Iterator[str]:
    """Return the pieces of a table of events, row by row.

    Args:
        starts: What each event begins with.
        columns: What follows, for each event; one `str` is the same for all.

    """
    filled = (
        repeat(column, len(starts)) if isinstance(column, str) else column
        for column in columns
    )
    return chain.from_iterable(zip(starts, *filled, strict=True))


def arrows(
    starts: Sequence[str], times: Sequence[str], numbers: Sequence[str]
) -> Iterator[str]:
    """Return the pieces of one end of each arrow; its two ends have one number."""
    return events(starts, times, ',"id":', numbers, "}")


def microseconds(nanoseconds: NDArray[np.int64]) -> list[str]:
    """Return times of no less than zero as text, exact to the nanosecond."""
    whole, rest = np.divmod(nanoseconds, 1000)
    columns = zip(whole.tolist(), rest.tolist(), strict=True)
    return [f"{us}{_THOUSANDTHS[ns]}" for us, ns in columns]


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
