"""What `perfc shard` does: search plans, compare them with given ones, say why."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import Target
from perfc.ir import PerfcError
from perfc.ir.support import brief
from perfc.passes import HBM, Placement, Plan
from perfc.planning.plans import MEMORIES, PlanCost, Tiers, most, ranking, size_text
from perfc.planning.searches import SEARCHES, Task, search
from perfc.tools.reports import Report
from perfc.tools.sharding.model import ShardModel

Floats = NDArray[np.float64]

LOOKUPS = "lookups and updates"

KINDS: Mapping[str, tuple[str, ...]] = {
    LOOKUPS: ("lookup_s", "update_s", "prefetch_s"),
    "exchange": (
        *("parts", "indices", "columns", "joined"),
        *("forward_comms_s", "backward_comms_s"),
    ),
}
"""What of a plan takes time: measures of the costs, by what a report says."""

REST = "dense"
"""What is left of a step without its tables."""

DATA_PARALLEL = "data_parallel"

_NEXT_TO_NOTHING = 1e-12
"""Loads that are so small still say which sharding groups there are."""

_ROUNDING = 1e-9
"""Share by which sums of floats may exceed a rank's memory, and still fit."""

_NOTICED_S = 1e-9
"""Ranks that differ by less are alike."""


@attrs.frozen(kw_only=True)
class PlanSearch:
    """What to search for.

    Attributes:
        types: Sharding types that may be used.
        memory_bytes: What tables may take on a rank; None for what the model leaves.
        tiers: Where tables may lie, and how much host memory they may take.
        method: How to search.
        seconds: For how long at most.
        given: Plans to compare, by name.
        full: How many of the plans found are analyzed whole.
        cost: What plans are compared by.

    """

    types: tuple[str, ...]
    memory_bytes: float | None
    tiers: Tiers
    method: str
    seconds: float
    given: Mapping[str, Plan]
    full: int
    cost: Callable[[ShardModel, Sequence[str], Tiers], PlanCost]


@attrs.frozen(eq=False, kw_only=True)
class RankedPlan:
    """A plan, and what it takes.

    Attributes:
        name: Who made it.
        plan: Where each table goes.
        model: The model.
        cost: What plans are compared by.
        loads: Of each rank, [ranks, resources]; None if the cost has no price for it.
        used_bytes: What tables take of `MEMORIES` of each rank, [ranks, 2].
        room_bytes: What they may take of each, [2].
        report: Of the whole pipeline, all ranks together, if it was asked.

    """

    __repr__ = brief

    name: str
    plan: Plan
    model: ShardModel
    cost: PlanCost
    loads: Floats | None
    used_bytes: Floats
    room_bytes: Floats
    report: Report | None = None

    @property
    def fits(self) -> bool:
        """Whether every rank has room for its tables."""
        most_bytes = self.room_bytes * (1 + _ROUNDING)
        return bool((self.used_bytes <= most_bytes).all())

    @functools.cached_property
    def device_bytes(self) -> Floats:
        """What tables take of device memory, [ranks]."""
        return self.used_bytes[:, 0]

    @functools.cached_property
    def host_bytes(self) -> Floats:
        """What tables take of host memory, [ranks]."""
        return self.used_bytes[:, 1]

    @functools.cached_property
    def tiers(self) -> Mapping[str, str]:
        """The tier of each table, by name."""
        return {name: placed.tier or HBM for name, placed in self.plan.items()}

    @functools.cached_property
    def cost_s(self) -> float | None:
        """The step by the cost that is searched by."""
        return None if self.loads is None else float(self.cost.step_s(self.loads))

    @property
    def step_s(self) -> float:
        """The step by the whole pipeline, else by the cost."""
        if self.report is not None:
            return self.report.time_us * 1e-6
        return float("inf") if self.cost_s is None else self.cost_s

    @functools.cached_property
    def alone_s(self) -> Floats:
        """The step if only one rank had lookups to do, for each rank, [ranks]."""
        loads, columns = self._loads, self._columns(KINDS[LOOKUPS])
        others = loads.copy()
        others[:, columns] = 0.0

        def alone(rank: int) -> float:
            changed = others.copy()
            changed[rank] = loads[rank]
            return float(self.cost.step_s(changed))

        return self._of_ranks(alone)

    @property
    def last(self) -> int | None:
        """The rank that others wait for; None if the step is as long without any."""
        if float(np.ptp(self.alone_s)) < _NOTICED_S:
            return None
        late = np.flatnonzero(self.alone_s >= self.alone_s.max() - _NOTICED_S)
        seconds = self._loads[late][:, self._columns(KINDS[LOOKUPS])].sum(axis=1)
        return int(late[most(seconds)])

    @functools.cached_property
    def slack_s(self) -> Floats:
        """How much longer each rank may look up until the step is longer, [ranks].

        Beyond its slack the step grows as the lookups do.
        """
        loads, step_s = self._loads, self.cost_s or 0.0
        columns = self._columns(KINDS[LOOKUPS][:1])
        column = max(columns, key=lambda n: float(loads[:, n].sum()))
        more_s = 10.0 * step_s

        def slack(rank: int) -> float:
            later = np.repeat(loads[None], 2, axis=0)
            later[:, rank, column] += (more_s, 2.0 * more_s)
            first_s, second_s = (float(each_s) for each_s in self.cost.step_s(later))
            slope = max((second_s - first_s) / more_s, 1e-12)
            return max(more_s - (first_s - step_s) / slope, 0.0)

        return self._of_ranks(slack)

    def _of_ranks(self, figure: Callable[[int], float]) -> Floats:
        """Return a figure of each rank, [ranks]; ranks with equal loads are alike."""
        _, firsts, kinds = np.unique(
            self._loads, axis=0, return_index=True, return_inverse=True
        )
        figures = np.array([figure(rank) for rank in firsts.tolist()])
        found: Floats = figures[kinds.reshape(-1)]
        return found

    @functools.cached_property
    def exposed_s(self) -> Mapping[str, float]:
        """What lookups, then exchanges add to the step, and what is left of it."""
        whole_s, loads = self.cost_s or 0.0, self._loads
        found: dict[str, float] = {}
        for name, measures in KINDS.items():
            before_s = float(self.cost.step_s(loads))
            loads = loads.copy()
            loads[:, self._columns(measures)] *= _NEXT_TO_NOTHING
            found[name] = max(0.0, before_s - float(self.cost.step_s(loads)))
        found[REST] = max(0.0, whole_s - math.fsum(found.values()))
        return found

    @property
    def decides(self) -> str:
        """What of the last rank takes most of the step."""
        return max(self.exposed_s, key=lambda name: self.exposed_s[name])

    def seconds(self, measure: str) -> Floats:
        """Return the seconds of lookups or updates on each rank, [ranks]."""
        found: Floats = self._loads[:, self._columns((measure,))].sum(axis=1)
        return found

    @property
    def _loads(self) -> Floats:
        ranks = self.model.world.ranks
        found = self.loads
        return np.zeros((ranks, len(self.cost.resources))) if found is None else found

    def _columns(self, measures: Sequence[str]) -> list[int]:
        names = [name.rpartition(".")[2] for name in self.cost.resources]
        return [n for n, name in enumerate(names) if name in measures]

    @functools.cached_property
    def parts_of_ranks(self) -> list[int]:
        """How many parts of tables each rank holds."""
        found = [0] * self.model.world.ranks
        for placement in self.plan.values():
            for rank in _held(placement, self.model):
                found[rank] += 1
        return found


def _held(placement: Placement, model: ShardModel) -> Sequence[int]:
    world = model.world
    if not placement.places:
        return range(world.ranks)
    if placement.kind in ("table_row_wise", "grid_shard"):
        size = world.per_node
        return [node * size + n for node in placement.places for n in range(size)]
    return placement.places


@attrs.frozen(eq=False, kw_only=True)
class Sharding:
    """Plans of a model, the best first, and how they were found.

    Attributes:
        model: The model.
        request: What was searched for.
        plans: The plans.
        room_bytes: What tables may take of each of `MEMORIES` of a rank, [2].
        dense_bytes: What the rest of the model takes there; None if not asked.
        seconds: How long the search took.

    """

    __repr__ = brief

    model: ShardModel
    request: PlanSearch
    plans: tuple[RankedPlan, ...]
    room_bytes: Floats
    dense_bytes: float | None
    seconds: float

    @property
    def best(self) -> RankedPlan:
        """The fastest plan that fits."""
        return self.plans[0]


def shard(
    model: ShardModel,
    request: PlanSearch,
    *,
    say: Callable[[str], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Sharding:
    """Search plans of a model and rank them with the given ones.

    Args:
        model: The model.
        request: What to search for.
        say: Told what is being done.
        stop: Whether to take the best plan so far.

    Raises:
        PerfcError: no plan fits, or a given one does not.

    """
    say(f"{len(model.tables)} tables: pricing their parts")
    given = {p.kind for plan in request.given.values() for p in plan.values()}
    priced = tuple(dict.fromkeys((*request.types, *sorted(given - {DATA_PARALLEL}))))
    cost = request.cost(model, priced, request.tiers)
    dense_bytes = None
    memory_bytes = request.memory_bytes
    if memory_bytes is None:
        dense_bytes = model.dense_bytes
        memory_bytes = _room_bytes(model.target, dense_bytes)
    asked = (model.tables, cost, model.world, memory_bytes, request.types)
    task = Task.of(*asked, tiers=request.tiers)
    room_bytes = task.room_bytes
    theirs = [_given(n, p, model, cost, room_bytes) for n, p in request.given.items()]
    for one in theirs:
        _check_fits(one)
    begun = time.monotonic()
    found = search(task, request.method, seconds=request.seconds, say=say, stop=stop)
    seconds = time.monotonic() - begun
    plans = [
        RankedPlan(
            name=one.name,
            plan=one.plan,
            model=model,
            cost=cost,
            loads=one.draft.loads,
            used_bytes=one.draft.used_bytes,
            room_bytes=room_bytes,
        )
        for one in found
    ]
    plans = [*_analyzed(plans, request.full, say), *plans[request.full :]]
    plans += _analyzed(theirs, len(theirs), say)
    plans = _ranked(plans, whole_first=request.full > 0)
    return Sharding(
        model=model,
        request=request,
        plans=tuple(plans),
        room_bytes=room_bytes,
        dense_bytes=dense_bytes,
        seconds=seconds,
    )


def _room_bytes(target: Target, dense_bytes: float) -> float:
    """Return the bytes that a rank has for tables.

    Raises:
        PerfcError: it has none.

    """
    usable_bytes = target.device.memory.usable_bytes
    if dense_bytes < usable_bytes:
        return usable_bytes - dense_bytes
    msg = (
        f"no room for tables: the rest of the step takes {size_text(dense_bytes)} "
        f"of a rank, {target.name} has {size_text(usable_bytes)}; use a smaller batch"
    )
    raise PerfcError(msg)


def _ranked(plans: Sequence[RankedPlan], *, whole_first: bool) -> list[RankedPlan]:
    """Return plans, the fastest first; of equals the search's, then by name.

    What is analyzed whole may come first: its step is no estimate of the search's.
    """
    found = sorted(plans, key=lambda one: (one.name not in SEARCHES, one.name))
    found = [found[n] for n in ranking([one.step_s for one in found])]
    return sorted(found, key=lambda one: whole_first and one.report is None)


def _analyzed(
    plans: Sequence[RankedPlan], most: int, say: Callable[[str], None]
) -> list[RankedPlan]:
    """Run the whole pipeline on the first few plans, if it has not been."""
    found: list[RankedPlan] = []
    for one in plans[:most]:
        say(f"analyzing the plan {one.name}")
        report = one.report or one.model.report(one.plan)
        found.append(attrs.evolve(one, report=report))
    return found


def _given(
    name: str, plan: Plan, model: ShardModel, cost: PlanCost, room_bytes: Floats
) -> RankedPlan:
    """Price a plan of the user's.

    Data-parallel tables have no price in the search: of these plans the whole pipeline
    says what they take, in memory too.
    """
    ranks = model.world.ranks
    made = RankedPlan(
        name=name,
        plan=plan,
        model=model,
        cost=cost,
        loads=None,
        used_bytes=np.zeros((ranks, len(MEMORIES))),
        room_bytes=room_bytes,
    )
    if any(placement.kind == DATA_PARALLEL for placement in plan.values()):
        report = model.report(plan)
        peak_bytes = max(use.peak_bytes for use in report.memory_uses)
        used_bytes = max(0.0, peak_bytes - model.dense_bytes)
        used = np.tile((used_bytes, 0.0), (ranks, 1))
        return attrs.evolve(made, used_bytes=used, report=report)
    loads = np.zeros((ranks, len(cost.resources)))
    used = np.zeros((ranks, len(MEMORIES)))
    for table in model.tables:
        for one in cost.shards(table, plan[table.name]):
            loads[one.rank] += one.loads
            used[one.rank] += (one.memory_bytes, one.host_bytes)
    return attrs.evolve(made, loads=loads, used_bytes=used)


def _check_fits(plan: RankedPlan) -> None:
    """Refuse a given plan that exceeds the memory of a rank.

    Raises:
        PerfcError: it does; the rank, and by how much, are named.

    """
    if plan.fits:
        return
    excess = plan.used_bytes - plan.room_bytes
    memory = int(np.argmax(excess.max(axis=0)))
    rank = int(np.argmax(excess[:, memory]))
    most, room = float(plan.used_bytes[rank, memory]), float(plan.room_bytes[memory])
    where = " of the host's memory" if MEMORIES[memory] == "host" else ""
    msg = (
        f"plan {plan.name} does not fit: tables take {size_text(most)} of rank "
        f"{rank}{where}, they may take {size_text(room)}"
    )
    raise PerfcError(msg)
