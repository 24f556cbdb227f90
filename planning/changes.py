"""Changes of a draft, priced many at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfc.planning.options import Choice, Draft, Floats

Change = tuple[tuple[int, Choice], ...]
"""Tables, and where each goes instead."""

_CHUNK = 2**20
"""Numbers of loads that are priced at once."""


def keys_of_changes(draft: Draft, changes: Sequence[Change]) -> Floats:
    """Return what a search makes least, after each change; infinity without room.

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
    for row, change in enumerate(changes):
        for table, choice in change:
            for old, sign in ((draft.choices[table], -1.0), (choice, 1.0)):
                if old is None:
                    continue
                option = draft.task.options[table][old[0]]
                for part, ranks in enumerate(option.chosen(old[1])):
                    loads[row, ranks] += sign * option.loads[part]
                    used[row, ranks] += sign * option.memory_bytes[part]
    keys = draft.task.keys(np.maximum(loads, 0.0))
    # Sums of floats: what was taken out may leave a trace.
    limit = max(draft.task.memory_bytes, float(draft.used_bytes.max()))
    fits = used.max(axis=-1) <= limit * (1 + 1e-12)
    return np.where(fits, keys, np.inf)


def apply(draft: Draft, change: Change) -> None:
    """Make a change."""
    for table, choice in change:
        draft.set(table, choice)


def least_places(draft: Draft, table: int, option: int, most: int) -> list[int]:
    """Return places for the parts of a table, those with the least load first.

    Args:
        draft: The draft.
        table: The table; where it is already does not count.
        option: How it would be cut.
        most: How many places to return at most.

    """
    found = draft.task.options[table][option]
    seconds = draft.loads @ draft.task.weights
    full = draft.used_bytes.copy()
    if (old := draft.choices[table]) is not None:
        cut = draft.task.options[table][old[0]]
        for part, ranks in enumerate(cut.chosen(old[1])):
            seconds[ranks] -= cut.loads[part] @ draft.task.weights
            full[ranks] -= cut.memory_bytes[part]
    wanted = float(found.memory_bytes.max())
    room = draft.task.memory_bytes - full >= wanted
    by_place = seconds.reshape(found.places, -1).max(axis=1)
    roomy = np.all(room.reshape(found.places, -1), axis=1)
    order = np.lexsort((by_place, ~roomy))[:most]
    return [int(place) for place in order if roomy[place]]
