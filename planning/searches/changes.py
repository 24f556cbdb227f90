"""Changes of a draft, priced many at a time."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats
from perfc.planning.plans import Choice, Option, ranking
from perfc.planning.searches.drafts import Draft, worth

Change = tuple[tuple[int, Choice], ...]
"""Tables, and where each goes instead."""

_CHUNK = 2**20
"""Numbers of loads that are priced at once."""


def keys_of_changes(draft: Draft, changes: Sequence[Change]) -> Floats:
    """Return the keys that a search makes least, after each change; inf without room.

    Args:
        draft: The draft.
        changes: Changes of it, each on its own.

    Returns:
        float64, [changes].

    """
    size = max(1, _CHUNK // max(draft.loads.size, 1))
    found = [
        _priced(draft, changes[first : first + size])
        for first in range(0, len(changes), size)
    ]
    return np.concatenate(found) if found else np.zeros(0)


def _priced(draft: Draft, changes: Sequence[Change]) -> Floats:
    loads = np.repeat(draft.loads[None], len(changes), axis=0)
    used = np.repeat(draft.used_bytes[None], len(changes), axis=0)
    moved = _Moved()
    for row, change in enumerate(changes):
        for table, choice in change:
            options = draft.task.options[table]
            if (old := draft.choices[table]) is not None:
                moved.add(row, options[old[0]], old[1], -1.0)
            moved.add(row, options[choice[0]], choice[1], 1.0)
    moved.apply(loads, used)
    keys = draft.task.keys(loads)
    limits = np.maximum(draft.task.room_bytes, draft.used_bytes.max(axis=0))
    fits = (used <= limits).all(axis=(-2, -1))
    return np.where(fits, keys, np.inf)


@attrs.define(eq=False)
class _Moved:
    """Loads that come to ranks of plans, or leave them, to be added up at once."""

    rows: list[int] = attrs.field(factory=list[int])
    ranks: list[int] = attrs.field(factory=list[int])
    signs: list[float] = attrs.field(factory=list[float])
    loads: list[Floats] = attrs.field(factory=list[Floats])
    bytes: list[Floats] = attrs.field(factory=list[Floats])

    def add(
        self, row: int, option: Option, places: tuple[int, ...], sign: float
    ) -> None:
        """Note the parts of a table."""
        ranks = option.ranks(places)
        self.ranks += ranks
        self.rows += [row] * len(ranks)
        self.signs += [sign] * len(ranks)
        self.loads.append(option.flat_loads)
        self.bytes.append(option.flat_bytes)

    def apply(self, loads: Floats, used_bytes: Floats) -> None:
        """Add all that was noted."""
        if not self.rows:
            return
        at, signs = (self.rows, self.ranks), np.array(self.signs)
        np.add.at(loads, at, np.concatenate(self.loads) * signs[:, None])
        np.add.at(used_bytes, at, np.concatenate(self.bytes) * signs[:, None])


def apply(draft: Draft, change: Change) -> None:
    """Make a change."""
    for table, choice in change:
        draft.set(table, choice)


@attrs.frozen(eq=False)
class Room:
    """How full ranks are, without one table.

    Attributes:
        draft: The plan.
        table: The table.
        seconds: Of each rank, [ranks].
        free_bytes: Memories of each rank, [ranks, 2].

    """

    draft: Draft
    table: int
    seconds: Floats
    free_bytes: Floats

    @classmethod
    def without(cls, draft: Draft, table: int, seconds: Floats) -> Room:
        """Take a table out.

        Args:
            draft: The plan.
            table: The table.
            seconds: Of each rank, with the table.

        """
        free = draft.task.room_bytes - draft.used_bytes
        if (old := draft.choices[table]) is not None:
            cut = draft.task.options[table][old[0]]
            ranks = cut.ranks(old[1])
            seconds, free = seconds.copy(), free.copy()
            seconds[ranks] -= worth(cut.flat_loads, draft.task.weights)
            free[ranks] += cut.flat_bytes
        return cls(draft, table, seconds, free)

    def places(self, option: int, most: int) -> list[int]:
        """Return places with room for parts, those with the least load first.

        Args:
            option: How the table would be cut.
            most: How many places to return at most.

        """
        found = self.draft.task.options[self.table][option]
        if found.span == 1:
            by_place, free = self.seconds, self.free_bytes
        else:
            by_place = self.seconds.reshape(found.places, -1).max(axis=1)
            by_rank = self.free_bytes.reshape(found.places, found.span, -1)
            free = by_rank.min(axis=1)
        roomy = set(np.flatnonzero((free >= found.largest_bytes).all(axis=1)).tolist())
        return [place for place in ranking(by_place) if place in roomy][:most]


def chosen(draft: Draft, table: int) -> tuple[Option, tuple[int, ...]]:
    """Return how a table is cut, and where its parts are.

    Raises:
        TypeError: it has no place.

    """
    choice = draft.choices[table]
    if choice is None:
        msg = "every table of a draft that is improved has a place"
        raise TypeError(msg)
    return draft.task.options[table][choice[0]], choice[1]


def seconds_of_ranks(draft: Draft) -> Floats:
    """Return the worth of each rank's loads in seconds, [ranks]."""
    return worth(draft.loads, draft.task.weights)
