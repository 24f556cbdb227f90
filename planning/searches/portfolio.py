"""The search for a plan: from every baseline and a beam, then by local changes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import attrs

from perfc.ir import PerfcError
from perfc.ir.support import format_bytes
from perfc.passes import HBM, Plan
from perfc.planning.plans import grades
from perfc.planning.searches.beam import Stop, beam_search
from perfc.planning.searches.drafts import Draft, Task
from perfc.planning.searches.greedy_search import BASELINES, greedy
from perfc.planning.searches.local_search import LocalSearch

SEARCHES = ("local", "beam", "greedy")
"""Ways to search: the first does all that the others do."""

_WIDEST, _CELLS = 32, 2048
"""Plans of a beam at most, and together with their ranks and tables."""

_SMALL = 24
"""Tables of a task whose searches go on longer: each step is quick."""

_STARTS = 2
"""Plans of larger tasks that are improved: the best."""

_VAIN, _FEW = 40, 6
"""How often in a row random moves may be in vain, of small tasks and of others."""


@attrs.frozen(eq=False)
class Found:
    """A plan that was found.

    Attributes:
        name: Who made it: a baseline, `local` or `beam`.
        draft: The plan and its loads.

    """

    name: str
    draft: Draft

    @property
    def plan(self) -> Plan:
        """Placement of each table."""
        return self.draft.plan


Say = Callable[[str], None]
"""Takes a line of progress."""


def search(  # noqa: PLR0913 - the public call; all but one have defaults
    task: Task,
    method: str = "local",
    *,
    starts: Mapping[str, Plan] = MappingProxyType({}),
    seconds: float = 60.0,
    seed: int = 0,
    say: Say = lambda _: None,
    stop: Stop = lambda: False,
) -> list[Found]:
    """Return plans that fit, the best first, the baselines among them.

    What the search itself finds is never worse than any of the others. Equal calls
    give equal plans, unless they are stopped.

    Args:
        task: What is to be planned.
        method: One of `SEARCHES`.
        starts: Plans to begin from besides, of the task's options.
        seconds: After so long the best plan so far is taken.
        seed: Of what local search does at random.
        say: Told what is being done.
        stop: Asked now and then; when it says so the best plan so far is taken.

    """
    ends = time.monotonic() + seconds

    def late() -> bool:
        return stop() or time.monotonic() > ends

    found = [Found(name, made) for name in BASELINES if (made := greedy(task, name))]
    found += [Found(name, Draft.of_plan(task, plan)) for name, plan in starts.items()]
    found = [one for one in found if one.draft.excess_bytes <= 0]
    if method != "greedy":
        run = _Run(task, late, seed, say, list(found))
        run.search(improve=method == "local")
        if best := run.best:
            made = best.draft.copy()
            made.sort()
            found.append(Found(method, made))
    if not found:
        raise PerfcError(no_room(task))
    return _sorted(found)


def _sorted(found: Sequence[Found]) -> list[Found]:
    """Return plans, the best first; of equals not a baseline's, then by name."""
    numbers = grades([one.draft.key for one in found])
    keys = [
        (g, one.name in BASELINES, one.name)
        for g, one in zip(numbers, found, strict=True)
    ]
    return [found[n] for n in sorted(range(len(found)), key=keys.__getitem__)]


@attrs.define(eq=False)
class _Run:
    """A search and the plans that it has so far.

    Attributes:
        task: What is to be planned.
        stop: Whether time is up.
        seed: Of the random moves.
        say: Told what is being done.
        plans: What was found.

    """

    task: Task
    stop: Stop
    seed: int
    say: Say
    plans: list[Found]

    @property
    def best(self) -> Found | None:
        """The best plan so far."""
        return next(iter(_sorted(self.plans)), None)

    def search(self, *, improve: bool) -> None:
        """Search until done, or told to stop."""
        # Search with a beam, and if tables hardly fit, by their size.
        cells = self.task.world.ranks * len(self.task.tables)
        width = max(1, min(_WIDEST, _CELLS // max(cells, 1)))
        self.say(f"beam search, {width} plans wide")
        made = beam_search(self.task, width, self.stop)
        made = made or beam_search(self.task, width, self.stop, by_size=True)
        if made is not None:
            self.plans.append(Found("beam", made))
        if improve:
            # Improve each plan; go on from the best with random moves.
            most = len(self.plans) if len(self.task.tables) <= _SMALL else _STARTS
            for start in _sorted(self.plans)[:most]:
                self.say(f"local search from {start.name}")
                from_here = LocalSearch(start.draft.copy(), self.stop, self.seed)
                from_here.improve()
                self.plans.append(Found("local", from_here.draft))
            if best := self.best:
                self.say("local search with random moves")
                last = LocalSearch(best.draft.copy(), self.stop, self.seed)
                last.restart(_VAIN if len(self.task.tables) <= _SMALL else _FEW)
                self.plans.append(Found("local", last.draft))


def no_room(task: Task) -> str:
    """Say why no plan fits in memory: a table, all together, or how they go."""
    limit, ranks = task.memory_bytes, task.world.ranks
    each, host = format_bytes(limit), format_bytes(task.host_bytes)
    more = "" if task.tiers != (HBM,) else ", or host memory (--tiers hbm,uvm-caching)"
    least = [min(float(o.largest_bytes[0]) for o in found) for found in task.options]
    largest = max(range(len(least)), key=least.__getitem__)
    if least[largest] > limit:
        return (
            f"no plan fits: table {task.tables[largest].name!r} takes at least "
            f"{format_bytes(least[largest])} of a rank, tables may take {each}: "
            f"{format_bytes(least[largest] - limit)} too much; use more ranks, or "
            f"allow more sharding types (--types){more}"
        )
    total = _least(task, [1.0, 0.0])
    if total > limit * ranks:
        return (
            f"no plan fits: the tables take {format_bytes(total)}, {ranks} ranks have "
            f"{each} each for them: {format_bytes(total - limit * ranks)} too much; "
            f"use more ranks{more}"
        )
    both, room = _least(task, [1.0, 1.0]), (limit + task.host_bytes) * ranks
    if task.host_bytes < math.inf and both > room:
        return (
            f"no plan fits: the tables take {format_bytes(both)}, {ranks} ranks have "
            f"{each} of device memory and {host} of host memory each for them: "
            f"{format_bytes(both - room)} too much; use more ranks, or more host "
            "memory (--host-memory)"
        )
    taken = f"{format_bytes(total)} of {format_bytes(limit * ranks)}"
    if task.host_bytes < math.inf and task.tiers != (HBM,):
        taken = (
            f"{format_bytes(both)} of {format_bytes(room)} of device and host memory"
        )
    return (
        f"no plan was found that fits: the tables take {taken}, but not placed so that "
        f"each rank has room; allow more sharding types (--types){more}"
    )


def _least(task: Task, counted: Sequence[float]) -> float:
    """Return the least bytes of all tables, in the memories that are counted."""
    return sum(
        min(float((option.flat_bytes @ counted).sum()) for option in found)
        for found in task.options
    )
