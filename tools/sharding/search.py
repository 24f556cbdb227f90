"""What a search for plans is asked, and what each plan takes and why."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats
from perfc.ir.support import brief
from perfc.passes import HBM, Placement, Plan
from perfc.passes.timing import TimeErrors
from perfc.planning.plans import PlanCost, Tiers, most
from perfc.tools.reports import PricedPlan, Report, plan_of
from perfc.tools.sharding.model import ShardModel

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

    @property
    def priced(self) -> PricedPlan:
        """What all verbs say of a plan; its interval if the pipeline was asked."""
        report, time_us = self.report, self.step_s * 1e6
        if report is None:
            return PricedPlan(name=self.name, time_us=time_us)
        return attrs.evolve(plan_of(self.name, report), time_us=time_us)

    @property
    def errors(self) -> TimeErrors | None:
        """What the step is off; None of a plan that does not fit, or was not asked."""
        return self.report.errors if self.report is not None and self.fits else None

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
