"""Local search: change the plan where the last rank is, while that helps.

A round tries every move of a part away from the ranks that decide the step, every
swap of it with a part elsewhere, every other way to cut its table, and where it lies
in host memory every way to bring it onto a device; it makes the best. Where nothing
helps, some tables are moved at random, and the rounds begin again (iterated local
search, Lourenço et al. 2003). Equal tasks and seeds give equal plans.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats
from perfc.planning.plans import TOLERANCE, Option, is_less, least, most, ranking
from perfc.planning.searches.beam import Stop
from perfc.planning.searches.changes import (
    Change,
    Room,
    apply,
    chosen,
    keys_of_changes,
    seconds_of_ranks,
)
from perfc.planning.searches.drafts import Draft, worth
from perfc.planning.searches.evictions import evictions

_NEAREST = 6
"""Places that are tried for a part: those with the least load."""

_SWAPS = 64
"""Swaps that are tried in a round: those that would even two ranks out best."""

_WORTH = 1e-9
"""A change that gains less of the step than this is none."""

_AGAIN = 1e-3
"""Random moves that gain more than this of the step begin to be counted anew."""

_MOVED = 3
"""Tables that are moved at random."""


@attrs.define(eq=False)
class LocalSearch:
    """A local search from one draft.

    Attributes:
        draft: The plan as it is.
        stop: Whether time is up.
        seed: Of the random moves.

    """

    draft: Draft
    stop: Stop = lambda: False
    seed: int = 0

    def improve(self) -> None:
        """Make the best change until none helps."""
        key = self.draft.key
        while not self.stop():
            changes = list(self._changes())
            keys = keys_of_changes(self.draft, changes)
            best = least(keys) if changes else -1
            if best < 0 or keys[best] >= key * (1 - _WORTH):
                return
            apply(self.draft, changes[best])
            key = float(keys[best])

    def restart(self, rounds: int) -> None:
        """Move tables at random and improve, so many times; keep the best plan.

        Args:
            rounds: How often in a row it may be in vain.

        """
        chance = random.Random(self.seed)
        best, key, vain = self.draft.copy(), self.draft.key, 0
        while vain < rounds and not self.stop():
            # Move some tables to places with room.
            draft = self.draft
            count = min(_MOVED, len(draft.choices))
            for table in chance.sample(range(len(draft.choices)), count):
                number = chance.randrange(len(draft.task.options[table]))
                option = draft.task.options[table][number]
                room = Room.without(draft, table, seconds_of_ranks(draft))
                roomy = room.places(number, option.places)
                if len(roomy) >= option.parts:
                    places = tuple(sorted(chance.sample(roomy, option.parts)))
                    draft.set(table, (number, places))
            self.improve()
            vain += 1
            if self.draft.excess_bytes <= 0 and is_less(self.draft.key, key):
                vain = 0 if self.draft.key < key * (1 - _AGAIN) else vain
                best, key = self.draft.copy(), self.draft.key
            else:
                self.draft = best.copy()
        self.draft = best

    def _changes(self) -> Iterator[Change]:
        """Yield the changes to try next."""
        # The ranks that decide: without their loads the step is shorter.
        # Where several are as late, none is alone: then the one with the most to do.
        draft, task = self.draft, self.draft.task
        busiest = most(seconds_of_ranks(draft))
        weighed = np.flatnonzero(task.weights * draft.loads.max(axis=0) > 0)
        firsts = {most(draft.loads[:, resource]) for resource in weighed}
        found = sorted({busiest, *firsts})
        # Each phase of a step may have another slowest rank, and only the model of the
        # step tells which of them matter. So it is priced without each candidate, all
        # in one call.
        without = np.repeat(draft.loads[None], len(found), axis=0)
        without[range(len(found)), found] = 0.0
        saved_s = draft.step_s - task.cost.step_s(without)
        noticed_s = TOLERANCE * draft.step_s
        late = [r for r, s in zip(found, saved_s, strict=True) if s > noticed_s]
        hot, seconds = frozenset({busiest, *late}), seconds_of_ranks(self.draft)
        tables = [t for t in range(len(self.draft.choices)) if self._is_on(t, hot)]
        for table in tables:
            room = Room.without(self.draft, table, seconds)
            for number, option in enumerate(self.draft.task.options[table]):
                for places in self._places(room, number, option, hot):
                    yield ((table, (number, places)),)
        yield from self._swaps(tables, seconds)
        yield from evictions(self.draft, tables)

    def _is_on(self, table: int, ranks: frozenset[int]) -> bool:
        option, places = chosen(self.draft, table)
        return not ranks.isdisjoint(option.ranks(places))

    def _places(
        self, room: Room, number: int, option: Option, hot: frozenset[int]
    ) -> Iterator[tuple[int, ...]]:
        """Yield where the parts of a table could go."""
        now = self.draft.choices[room.table]
        # Trying all places would be too slow, and a move helps most where the load is
        # least. The table's own places may be among those, hence `parts` more.
        least = room.places(number, _NEAREST + option.parts)
        if len(least) < option.parts:
            return
        if option.parts == 1:
            yield from ((place,) for place in least if now != (number, (place,)))
            return
        even = tuple(sorted(least[: option.parts]))
        if now != (number, even):
            yield even
        # For another sharding only one placement is tried. If that helps, the next
        # round moves its parts one by one.
        if now is None or now[0] != number:
            return
        leaving = [p for p in now[1] if any(r // option.span == p for r in hot)]
        for old in leaving:
            kept = [place for place in now[1] if place != old]
            for new in least:
                if new not in now[1]:
                    yield tuple(sorted((*kept, new)))

    def _swaps(self, tables: list[int], by_rank: Floats) -> Iterator[Change]:
        """Yield exchanges of two tables that lie whole, or as wide, on two places."""
        single = [
            (t, *chosen(self.draft, t))
            for t in range(len(self.draft.choices))
            if self._single(t)
        ]
        whole = [table for table, _, _ in single]
        spans = np.array([option.span for _, option, _ in single])
        at = spans * np.array([places[0] for _, _, places in single], dtype=np.intp)
        lists = [option.flat_loads[0] for _, option, _ in single]
        seconds = (
            worth(np.array(lists), self.draft.task.weights) if lists else np.zeros(0)
        )
        scale = float(by_rank.max())
        found: list[tuple[int, int]] = []
        offs: list[float] = []
        for one in np.flatnonzero(np.isin(whole, tables)):
            gaps = by_rank[at[one]] - by_rank[at]
            off = np.abs(gaps - 2 * (seconds[one] - seconds))
            others = np.flatnonzero((at != at[one]) & (spans == spans[one]))
            best = others[ranking(off[others], scale)[:_SWAPS]]
            offs += off[best].tolist()
            found += [(whole[one], whole[n]) for n in best]
        yield from (self._swap(*found[n]) for n in ranking(offs, scale)[:_SWAPS])

    def _single(self, table: int) -> bool:
        option, places = chosen(self.draft, table)
        return len(places) == 1 and option.places > 1

    def _swap(self, one: int, other: int) -> Change:
        first, second = self.draft.choices[one], self.draft.choices[other]
        if first is None or second is None:
            return ()
        return ((one, (first[0], second[1])), (other, (second[0], first[1])))
