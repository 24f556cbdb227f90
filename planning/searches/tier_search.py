"""Placements of tables in tiers: greedy ones, local search, and the exact one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import attrs
import numpy as np

from perfc.planning.plans import is_less
from perfc.planning.searches.tier_bound import ExactSearch, Relaxation, used_sets
from perfc.planning.searches.tier_task import Placed, TierTask

EXACT, LOCAL = "exact", "local"
FEW_TABLES = 30
"""Up to so many tables placements are compared until none can be better."""

_MOST_NODES = 20_000
"""Placements, whole or in part, that the exact search looks at."""

_NEAR, _ALL_PAIRS = 6, 60
"""Tables near in size that a table changes places with; of few tables with all."""

_STARTS, _MANY_TABLES = 3, 300
"""Placements that are improved: the best of those to begin with; of many tables one."""

_PASSES = 12
"""How often local search goes through all tables, at most."""


@attrs.frozen(kw_only=True)
class TierPlan:
    """A placement that a search has found.

    Attributes:
        name: How: `exact` or `local`.
        places: Of each table, the number of its tier.
        wrong: By which shares limits are exceeded, added up; 0 of a placement that can
            be.
        score: What it has of the objective.

    """

    name: str
    places: tuple[int, ...]
    wrong: float
    score: float


def search_tiers(
    task: TierTask,
    starts: Sequence[Sequence[int]] = (),
    say: Callable[[str], None] = lambda _: None,
) -> TierPlan:
    """Return the placement with the least of the objective that is found.

    Args:
        task: Tables and tiers.
        starts: Placements to begin from besides the greedy one.
        say: Told what is being done.

    """
    count = len(task.tables)
    say(f"{count:,} tables: local search over {len(task.setting.tiers)} tiers")
    tried = list(dict.fromkeys(tuple(one) for one in _starts(task, starts)))
    first = sorted((Placed(task, one) for one in tried), key=Placed.score)
    # Improve placements, and return the best; of equals the first.
    found = first[: _STARTS if count <= _MANY_TABLES else 1]
    best = found[0]
    for one in found:
        _improve(one)
        if _better(one.score(), best.score()):
            best = one
    wrong, score = best.score()
    if count > FEW_TABLES:
        return TierPlan(name=LOCAL, places=(*best.places,), wrong=wrong, score=score)
    say(f"{count:,} tables: exact search over {len(task.setting.tiers)} tiers")
    exact = ExactSearch(task, best.places, _MOST_NODES)
    exact.run()
    wrong, score = Placed(task, exact.best).score()
    name = EXACT if exact.complete else LOCAL
    return TierPlan(name=name, places=exact.best, wrong=wrong, score=score)


def _starts(task: TierTask, given: Sequence[Sequence[int]]) -> Iterator[Sequence[int]]:
    """Yield placements to improve: given ones, and of each set of tiers two.

    One is greedy, the other what the bound says.
    """
    yield densest_first(task)
    yield from given
    last = task.missed.shape[1] - 1
    for used, told in used_sets(task):
        part = Relaxation(task, used, told, 0, last)
        yield densest_first(task, part.allowed)
        if places := part.bound(math.inf).places:
            yield places


def densest_first(task: TierTask, allowed: Sequence[int] = ()) -> list[int]:
    """Return the greedy placement: the densest tables in the fastest tier with room.

    Density is the bytes that a query looks up over those stored. What has room nowhere
    goes to the largest tier.

    Args:
        task: Tables and tiers.
        allowed: Numbers of the tiers that tables may lie in; all if empty.

    """
    stored = task.amounts[0]
    density = task.weight / np.maximum(stored.min(axis=1), 1.0)
    order = np.argsort(-density, kind="stable").tolist()
    return _filled(task, order, allowed)


def smallest_first(task: TierTask) -> list[int]:
    """Return the placement of the smallest tables in the fastest tier with room."""
    order = np.argsort(task.amounts[0].min(axis=1), kind="stable").tolist()
    return _filled(task, order)


def _filled(
    task: TierTask, order: Sequence[int], allowed: Sequence[int] = ()
) -> list[int]:
    """Place tables, one after the other, in the fastest tier that has room left."""
    tiers, stored = task.setting.tiers, task.amounts[0].tolist()
    ways = allowed or range(len(tiers))
    left = [tier.capacity_bytes for tier in tiers]
    largest = max(ways, key=left.__getitem__)
    places = [largest] * len(order)
    for table in order:
        room = (n for n in ways if stored[table][n] <= left[n])
        places[table] = next(room, largest)
        left[places[table]] -= stored[table][places[table]]
    return places


def _better(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether less is wrong; where nothing is, whether there is less of the score."""
    if one[0] or other[0]:
        return is_less(one[0], other[0])
    return is_less(one[1], other[1])


def _improve(placed: Placed) -> None:
    """Move tables, and change two for each other, while that is better."""
    # Tables that may change places: all pairs, of many those near in size.
    order = np.argsort(placed.task.amounts[0].min(axis=1), kind="stable").tolist()
    near = len(order) if len(order) <= _ALL_PAIRS else _NEAR
    pairs = [
        (one, other)
        for place, one in enumerate(order)
        for other in order[place + 1 : place + 1 + near]
    ]
    now = placed.score()
    for _ in range(_PASSES):
        before = now
        now = _move_each(placed, now)
        if now == before:
            now = _swap_each(placed, now, pairs)
        if now == before:
            return


def _move_each(placed: Placed, now: tuple[float, float]) -> tuple[float, float]:
    for table, here in enumerate([*placed.places]):
        chosen = here
        for place in range(len(placed.task.setting.tiers)):
            if place == here:
                continue
            placed.move(table, place)
            found = placed.score()
            if _better(found, now):
                chosen, now = place, found
        placed.move(table, chosen)
    return now


def _swap_each(
    placed: Placed, now: tuple[float, float], pairs: Sequence[tuple[int, int]]
) -> tuple[float, float]:
    for one, other in pairs:
        here, there = placed.places[one], placed.places[other]
        if here == there:
            continue
        placed.move(one, there)
        placed.move(other, here)
        found = placed.score()
        if _better(found, now):
            now = found
            continue
        placed.move(one, here)
        placed.move(other, there)
    return now
