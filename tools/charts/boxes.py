"""Timelines of boxes that are told one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from perfc.tools.pages import Slices, Timeline, TimelineLane

_NS = 1e9
_GREY = 8
"""The colour that stands for none."""


class Box(NamedTuple):
    """Something that runs.

    Attributes:
        lane: Where.
        name: What.
        kind: What its colour is for.
        start_s: When it begins.
        end_s: When it ends.

    """

    lane: str
    name: str
    kind: str
    start_s: float
    end_s: float


def box_timeline(
    boxes: Sequence[Box], colors: Mapping[str, int], text: str
) -> Timeline:
    """Return boxes in lanes, in the order in which lanes are first told of.

    Args:
        boxes: The boxes; those of a lane do not overlap.
        colors: Kinds, and the number of the colour of each; others are grey.
        text: What it shows, in words.

    """
    kinds = list(dict.fromkeys([*colors, *(box.kind for box in boxes)]))
    names = {box.name: 0 for box in boxes}
    numbers = {name: number for number, name in enumerate(names)}
    lanes: dict[str, list[Box]] = {}
    for box in boxes:
        lanes.setdefault(box.lane, []).append(box)
    return Timeline(
        lanes=[
            TimelineLane(label, _slices(sorted(own, key=_begin), numbers, kinds))
            for label, own in lanes.items()
        ],
        names=[*names],
        kinds=kinds,
        colors=[colors.get(kind, _GREY) for kind in kinds],
        text=text,
    )


def _begin(box: Box) -> float:
    return box.start_s


def _slices(
    boxes: Sequence[Box], numbers: Mapping[str, int], kinds: Sequence[str]
) -> Slices:
    return Slices(
        np.array([numbers[box.name] for box in boxes], dtype=np.int64),
        np.array([kinds.index(box.kind) for box in boxes], dtype=np.int64),
        np.rint(np.array([box.start_s for box in boxes]) * _NS).astype(np.int64),
        np.rint(np.array([box.end_s for box in boxes]) * _NS).astype(np.int64),
    )
