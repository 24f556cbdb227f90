"""Greedy plans by one number a table: the baselines of every search.

Sort the tables by a number, the largest first; put each where the sum is least among
the ranks with room for it. The numbers are those of RecShard, AutoShard and DreamShard
(Zha et al., 2022): columns, bytes, columns x lookups, and that times log10 of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from perfc.planning.plans import Table, grades, ranking
from perfc.planning.searches.drafts import Draft, Task


def _dim(table: Table) -> float:
    return float(table.dim)


def _size(table: Table) -> float:
    return table.bytes


def _lookup(table: Table) -> float:
    return table.dim * table.pooling


def _size_lookup(table: Table) -> float:
    return table.dim * table.pooling * math.log10(max(table.rows, 1))


BASELINES: Mapping[str, Callable[[Table], float]] = MappingProxyType(
    {
        "dim": _dim,
        "size": _size,
        "lookup": _lookup,
        "size-lookup": _size_lookup,
    }
)
"""What each greedy plan sorts by."""


def greedy(task: Task, name: str) -> Draft | None:
    """Return the plan of one of `BASELINES`; None where a table finds no room.

    A table goes whole to one place, if it may and there is room; else in as few parts
    as it can.
    """
    cost = BASELINES[name]
    amounts = [cost(table) for table in task.tables]
    order = ranking([-amount for amount in amounts])
    sums = np.zeros(task.world.ranks)
    made = Draft.empty(task)
    for table in order:
        if not _put(made, table, amounts[table], sums):
            return None
    return made


def _put(
    draft: Draft, table: int, amount: float, sums: np.ndarray[tuple[int], np.dtype]
) -> bool:
    """Put a table where the sum is least; return whether it found room."""
    for number, option in enumerate(draft.task.options[table]):
        free = draft.task.room_bytes - draft.used_bytes
        room = np.all(free >= option.largest_bytes, axis=1)
        roomy = room.reshape(option.places, -1).all(axis=1)
        by_place = sums.reshape(option.places, -1).max(axis=1)
        order = np.lexsort((grades(by_place), ~roomy))[: option.parts]
        if not roomy[order].all():
            continue
        places = tuple(sorted(int(place) for place in order))
        draft.set(table, (number, places))
        sums[option.ranks(places)] += amount / option.parts / option.span
        return True
    return False
