"""Changes that bring a table of host memory onto a device, for others that leave it.

Where a device is full no move of one table helps: as in a knapsack, what comes has to
be worth more than what leaves for it. The tables that leave are those that lose least
for the memory that they free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats
from perfc.passes import HBM
from perfc.planning.plans import Choice, Option, ranking
from perfc.planning.searches.changes import Change, Room, chosen, seconds_of_ranks
from perfc.planning.searches.drafts import Draft

_NEAREST = 4
"""Places that are tried for a table: those with the least load."""


def evictions(draft: Draft, tables: Iterable[int]) -> Iterator[Change]:
    """Yield ways to bring each of some tables onto devices that may be full.

    Args:
        draft: The plan.
        tables: Those that may come; those in device memory already are passed over.

    """
    seconds = seconds_of_ranks(draft)
    for table in tables:
        if chosen(draft, table)[0].tier == HBM:
            continue
        room = Room.without(draft, table, seconds)
        for number, option in enumerate(draft.task.options[table]):
            if option.tier != HBM or option.parts > 1:
                continue
            by_place = room.seconds.reshape(option.places, -1).max(axis=1)
            for place in ranking(by_place)[:_NEAREST]:
                leaving = _leaving(room, option, place)
                if leaving is not None:
                    yield ((table, (number, (place,))), *leaving)


@attrs.frozen(eq=False)
class _Leaver:
    """A table that may leave device memory.

    Attributes:
        price: Seconds that it takes longer, for each byte that it frees.
        table: Its number.
        choice: Where it would go.
        freed_bytes: Of device memory, [ranks].

    """

    price: float
    table: int
    choice: Choice
    freed_bytes: Floats


def _leaving(room: Room, option: Option, place: int) -> Change | None:
    """Return who leaves a place so that a part has room; None if it never has."""
    ranks = option.ranks((place,))
    missing = option.flat_bytes[:, 0] - room.free_bytes[ranks, 0]
    changes: dict[int, Choice] = {}
    leavers = list(_leavers(room, ranks))
    for number in ranking([one.price for one in leavers]):
        one = leavers[number]
        if (missing <= 0).all():
            break
        if one.table not in changes:
            changes[one.table] = one.choice
            missing = missing - one.freed_bytes[ranks]
    return None if (missing > 0).any() else tuple(changes.items())


def _leavers(room: Room, ranks: Sequence[int]) -> Iterator[_Leaver]:
    """Yield how tables on some ranks can leave the devices for lower tiers."""
    draft, weights = room.draft, room.draft.task.weights
    for table in range(len(draft.choices)):
        now, places = chosen(draft, table)
        on = now.ranks(places)
        if table == room.table or now.tier != HBM or set(ranks).isdisjoint(on):
            continue
        for number, other in enumerate(draft.task.options[table]):
            same = (other.kind, other.parts) == (now.kind, now.parts)
            if other.tier == HBM or not same:
                continue
            freed = now.flat_bytes[:, 0] - other.flat_bytes[:, 0]
            if (freed <= 0).any():
                continue
            more = float(((other.flat_loads - now.flat_loads) * weights).sum())
            by_rank = np.zeros(draft.task.world.ranks)
            by_rank[on] = freed
            price = more / float(freed.sum())
            yield _Leaver(price, table, (number, places), by_rank)
