"""The events of a trace, as text.

Text, not objects: a hundred thousand events are written in under a second.
"""

from __future__ import annotations

from json.encoder import encode_basestring_ascii as quoted

import numpy as np
from numpy.typing import NDArray

from perfc.exporters.trace_rank import Lane

__all__ = ["arrow_end", "arrow_start", "microseconds", "quoted", "slice_start"]

_THOUSANDTHS = [f".{number:03}" for number in range(1000)]


def microseconds(nanoseconds: NDArray[np.int64]) -> list[str]:
    """Return times of no less than zero as text, exact to the nanosecond."""
    whole, rest = np.divmod(nanoseconds, 1000)
    columns = zip(whole.tolist(), rest.tolist(), strict=True)
    return [f"{us}{_THOUSANDTHS[ns]}" for us, ns in columns]


def slice_start(category: str, name: str, lane: Lane) -> str:
    """Return a slice's beginning; its time, duration and arguments follow."""
    return (
        f'{{"ph":"X","cat":"{category}","name":{quoted(name)},'
        f'"pid":{lane.pid},"tid":{lane.tid},"ts":'
    )


def arrow_start(category: str, lane: Lane) -> str:
    """Return the beginning of an arrow's start; its time and number follow.

    An end of an arrow belongs to the slice that starts at its time on its lane.
    """
    return (
        f'{{"ph":"s","cat":"{category}","name":"{category}",'
        f'"pid":{lane.pid},"tid":{lane.tid},"ts":'
    )


def arrow_end(category: str, lane: Lane) -> str:
    """Return the beginning of an arrow's end; its time and number follow."""
    return (
        f'{{"ph":"f","bp":"e","cat":"{category}","name":"{category}",'
        f'"pid":{lane.pid},"tid":{lane.tid},"ts":'
    )
