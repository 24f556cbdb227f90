"""Beam search: tables one after the other, keeping the best few plans so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from perfc.planning.plans import grades, ranking
from perfc.planning.searches.changes import (
    Change,
    Room,
    apply,
    keys_of_changes,
    seconds_of_ranks,
)
from perfc.planning.searches.drafts import Draft, Task

_NEAREST = 6
"""Places that are tried for each way to cut a table."""

Stop = Callable[[], bool]
"""Whether time is up."""


def beam_search(
    task: Task, width: int, stop: Stop = lambda: False, *, by_size: bool = False
) -> Draft | None:
    """Return a plan of all tables; None if none that was kept has room for them.

    Args:
        task: What is to be planned.
        width: Plans to keep after each table.
        stop: Asked before each table; when it says so, only the best plan goes on.
        by_size: Whether the largest tables come first, not the slowest.

    """
    first = task.seconds
    if by_size:
        first = np.array([float(o[0].flat_bytes[:, 0].sum()) for o in task.options])
    order = ranking(-first)
    beam = [Draft.empty(task)]
    for table in order:
        beam = _step(beam, table, 1 if stop() else width)
        if not beam:
            return None
    return beam[0]


def _step(beam: Sequence[Draft], table: int, width: int) -> list[Draft]:
    """Place one more table in every way, and keep the best."""
    found: list[tuple[int, Change]] = []
    keys: list[float] = []
    for number, draft in enumerate(beam):
        changes: list[Change] = [((table, c),) for c in _choices(draft, table)]
        keys += keys_of_changes(draft, changes).tolist()
        found += [(number, change) for change in changes]
    graded = sorted(zip(grades(keys), found, keys, strict=True))
    kept: list[Draft] = []
    seen: set[int] = set()
    for grade, (number, change), key in graded:
        if key == np.inf or len(kept) == width:
            break
        if grade in seen:  # the same plan with ranks renamed
            continue
        seen.add(grade)
        made = beam[number].copy()
        apply(made, change)
        if made.excess_bytes <= 0:
            kept.append(made)
    return kept


def _choices(draft: Draft, table: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    room = Room.without(draft, table, seconds_of_ranks(draft))
    for number, option in enumerate(draft.task.options[table]):
        nearest = room.places(number, _NEAREST + option.parts)
        if len(nearest) < option.parts:
            continue
        if option.parts == 1:
            for place in nearest:
                yield number, (place,)
            continue
        yield number, tuple(sorted(nearest[: option.parts]))
        for other in nearest[option.parts :][:2]:
            yield number, tuple(sorted((*nearest[: option.parts - 1], other)))
