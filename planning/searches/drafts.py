"""Tasks of a search, and the plans that it makes: sums of what options add."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import attrs
import numpy as np

from perfc.costmodels import UVM_CACHING
from perfc.costmodels.kernels import Floats
from perfc.ir import UsageError
from perfc.ir.support import brief
from perfc.passes import HBM, Placement, Plan, World
from perfc.passes.embeddings import SHARDING_TYPES, check_parts
from perfc.planning import plans

SPREAD_WEIGHT = 1e-5
"""How much evenness counts beside the step: it only breaks ties."""


@attrs.frozen(eq=False)
class Task:
    """What a search is to solve.

    Attributes:
        tables: The tables.
        cost: What plans of them cost.
        world: The ranks.
        memory_bytes: What tables may take of a rank's device memory.
        options: Of each table the ways to cut it.
        host_bytes: What they may take of a rank's host memory.
        tiers: Where they may lie.

    """

    __repr__ = brief

    tables: tuple[plans.Table, ...]
    cost: plans.PlanCost
    world: World
    memory_bytes: float
    options: tuple[tuple[plans.Option, ...], ...]
    host_bytes: float = math.inf
    tiers: tuple[str, ...] = (HBM,)

    @classmethod
    def of(  # noqa: PLR0913 - the public call; tiers have a default
        cls,
        tables: Sequence[plans.Table],
        cost: plans.PlanCost,
        world: World,
        memory_bytes: float,
        types: Sequence[str],
        *,
        tiers: plans.Tiers = plans.DEVICE_ONLY,
    ) -> Task:
        """Ask *cost* for what the parts of each table add.

        Tables come in the order of their names, and what they add is rounded so that
        sums of it are exact: of plans that are alike a search finds the same one.
        """
        check_parts(len(tables), world.ranks)
        unknown = [kind for kind in types if kind not in SHARDING_TYPES]
        if unknown or not types:
            known = ", ".join(SHARDING_TYPES)
            msg = f"sharding type {unknown[0] if unknown else ''!r} is none of {known}"
            raise UsageError(msg)
        tables = plans.by_name(tables)
        options = plans.options_of(tables, cost, world, types, tiers)
        bare = [t for t, found in zip(tables, options, strict=True) if not found]
        if bare:
            msg = (
                f"table {bare[0].name!r} of {bare[0].dim} columns cannot be sharded "
                f"{' or '.join(types)} on {world.ranks} ranks; allow table_wise"
            )
            raise UsageError(msg)
        room = memory_bytes, options, tiers.host_bytes, tiers.names
        return cls(tuple(tables), cost, world, *room)

    @functools.cached_property
    def room_bytes(self) -> Floats:
        """What tables may take of each of `MEMORIES` of a rank, [2]."""
        return np.array([self.memory_bytes, self.host_bytes])

    @functools.cached_property
    def weights(self) -> Floats:
        """Seconds that a unit of each resource takes where it decides the step."""
        share = self._totals / self.world.ranks
        high = np.zeros((len(share), self.world.ranks, len(share)))
        high[range(len(share)), 0, range(len(share))] = 1e3 * share
        twice = self.cost.step_s(2 * high) - self.cost.step_s(high)
        once = np.where(share > 0, 1e3 * share, 1.0)
        seen = twice > plans.TOLERANCE * self.cost.step_s(high)
        found: Floats = np.where(seen, twice, 0.0) / once
        return found

    @functools.cached_property
    def _totals(self) -> Floats:
        largest = [
            np.max([option.loads.sum(axis=(0, 1)) for option in found], axis=0)
            for found in self.options
        ]
        found: Floats = np.sum(largest, axis=0)
        return found

    @functools.cached_property
    def seconds(self) -> Floats:
        """What each table takes in seconds, by its first option."""
        first = [found[0].loads.sum(axis=(0, 1)) for found in self.options]
        return worth(np.array(first), self.weights)

    def keys(self, loads: Floats) -> Floats:
        """Return the keys that a search makes least: steps, and evenness among equals.

        Args:
            loads: Of plans, ranks and resources, [..., ranks, resources].

        """
        by_rank = worth(loads, self.weights)
        spread = np.sqrt(np.mean(by_rank * by_rank, axis=-1))
        found: Floats = self.cost.step_s(loads) + SPREAD_WEIGHT * spread
        return found


def worth(loads: Floats, weights: Floats) -> Floats:
    """Return the worth of loads in seconds, [...].

    A product of matrices would add up in an order that goes with the processor.

    Args:
        loads: [..., resources].
        weights: Seconds of a unit of each, [resources].

    """
    found: Floats = (loads * weights).sum(axis=-1)
    return found


@attrs.define(eq=False)
class Draft:
    """A plan that is being made.

    Attributes:
        task: What it is of.
        choices: Of each table its option and places; none yet.
        loads: Of each rank, [ranks, resources].
        used_bytes: Memories of each rank that tables take, [ranks, 2].

    """

    __repr__ = brief

    task: Task
    choices: list[plans.Choice | None]
    loads: Floats
    used_bytes: Floats

    @classmethod
    def empty(cls, task: Task) -> Draft:
        """Return one without tables."""
        ranks = task.world.ranks
        loads = np.zeros((ranks, len(task.cost.resources)))
        used = np.zeros((ranks, len(plans.MEMORIES)))
        return cls(task, [None] * len(task.tables), loads, used)

    @classmethod
    def of_plan(cls, task: Task, plan: Plan) -> Draft:
        """Return one that says what *plan* says."""
        made = cls.empty(task)
        for number, table in enumerate(task.tables):
            made.set(number, _choice(task.options[number], plan[table.name]))
        return made

    def copy(self) -> Draft:
        """Return another one that says the same."""
        return Draft(
            self.task, list(self.choices), self.loads.copy(), self.used_bytes.copy()
        )

    def set(self, table: int, choice: plans.Choice | None) -> None:
        """Place a table, or take it out."""
        for old, sign in ((self.choices[table], -1.0), (choice, 1.0)):
            if old is not None:
                self._add(self.task.options[table][old[0]], old[1], sign)
        self.choices[table] = choice

    def _add(self, option: plans.Option, places: Sequence[int], sign: float) -> None:
        ranks = option.ranks(places)
        self.loads[ranks] += sign * option.flat_loads
        self.used_bytes[ranks] += sign * option.flat_bytes

    def sort(self) -> None:
        """Let tables that are alike take their places in the order of their names."""
        alike: dict[object, list[int]] = {}
        for table, options in enumerate(self.task.options):
            if self.choices[table] is not None:
                kind = tuple(option.content for option in options)
                alike.setdefault(kind, []).append(table)
        for tables in alike.values():
            found = [c for t in tables if (c := self.choices[t]) is not None]
            for table, choice in zip(tables, sorted(found), strict=True):
                self.choices[table] = choice

    @property
    def key(self) -> float:
        """What a search makes least."""
        return float(self.task.keys(self.loads))

    @property
    def step_s(self) -> float:
        """What its step takes."""
        return float(self.task.cost.step_s(self.loads))

    @property
    def excess_bytes(self) -> float:
        """Bytes by which the fullest rank is too full; not above 0 if it fits."""
        return float((self.used_bytes - self.task.room_bytes).max())

    @property
    def plan(self) -> Plan:
        """Placement of each table that has one."""
        found: dict[str, Placement] = {}
        for number, table in enumerate(self.task.tables):
            choice = self.choices[number]
            if choice is not None:
                option = self.task.options[number][choice[0]]
                found[table.name] = option.placement(choice[1])
        return found


def _choice(options: Sequence[plans.Option], placement: Placement) -> plans.Choice:
    """Return which option a plan has chosen."""
    tier, cache = placement.tier or HBM, placement.cache
    for number, option in enumerate(options):
        places = placement.places or (0,)
        cached = option.tier != UVM_CACHING or option.cache == cache
        alike = option.kind == placement.kind and option.tier == tier and cached
        if alike and option.parts == len(places):
            return number, places
    msg = f"no option is {placement.kind} in {len(placement.places)} parts"
    raise UsageError(msg)
