"""All plans of a small task, to know the best."""

from __future__ import annotations

import math

import numpy as np

from perfc.costmodels.kernels import Floats
from perfc.ir import UsageError
from perfc.planning.plans import Choice, is_less, least
from perfc.planning.searches.drafts import Draft, Task

MOST_PLANS = 20_000_000
"""More than these are not tried."""

_AT_ONCE = 100_000


def count_plans(task: Task) -> int:
    """Return how many plans there are."""
    return math.prod(
        sum(math.comb(option.places, option.parts) for option in found)
        for found in task.options
    )


def exhaustive(task: Task) -> Draft | None:
    """Return the best of all plans; None if none has room."""
    if (count := count_plans(task)) > MOST_PLANS:
        msg = f"{count:,} plans are too many to try all; at most {MOST_PLANS:,}"
        raise UsageError(msg)
    # Loads and bytes add up over tables, so each choice is worked out once, alone.
    choices = [_choices(task, table) for table in range(len(task.tables))]
    loads = [np.array([_rows(task, t, c)[0] for c in choices[t]]) for t in _all(task)]
    used = [np.array([_rows(task, t, c)[1] for c in choices[t]]) for t in _all(task)]
    sizes = [len(found) for found in choices]
    # Combinations of the last tables are summed in arrays, at most `_AT_ONCE` of them,
    # so that Python loops over those of the first tables only.
    split, later = len(sizes), 1
    while split and later * sizes[split - 1] <= _AT_ONCE:
        split -= 1
        later *= sizes[split]
    tail_loads, tail_used = _summed(loads[split:]), _summed(used[split:])
    best, best_key = None, np.inf
    for head in np.ndindex(*sizes[:split]):
        rows = sum((loads[t][c] for t, c in enumerate(head)), np.zeros(()))
        full = sum((used[t][c] for t, c in enumerate(head)), np.zeros(()))
        keys = task.keys(rows + tail_loads)
        # A plan that does not fit must not win, however fast it is.
        too_full = full + tail_used > task.room_bytes
        keys[too_full.any(axis=(-2, -1))] = np.inf
        at = least(keys)
        if is_less(float(keys[at]), best_key):
            tail = np.unravel_index(at, sizes[split:]) if split < len(sizes) else ()
            best, best_key = (*head, *(int(c) for c in tail)), float(keys[at])
    if best is None:
        return None
    made = Draft.empty(task)
    for table, chosen in enumerate(best):
        made.set(table, choices[table][chosen])
    return made


def _all(task: Task) -> range:
    return range(len(task.tables))


def _choices(task: Task, table: int) -> list[Choice]:
    return [
        (number, places)
        for number, option in enumerate(task.options[table])
        for places in option.spots()
    ]


def _rows(task: Task, table: int, choice: Choice) -> tuple[Floats, Floats]:
    """Return the loads and the bytes that one choice adds to all ranks."""
    alone = Draft.empty(task)
    alone.set(table, choice)
    return alone.loads, alone.used_bytes


def _summed(rows: list[Floats]) -> Floats:
    found = np.zeros((1, *rows[0].shape[1:])) if rows else np.zeros((1, 1, 1))
    for each in rows:
        found = (found[:, None] + each[None]).reshape(-1, *each.shape[1:])
    return found
