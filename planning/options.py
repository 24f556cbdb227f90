"""Ways to place each table, as arrays that a search adds up."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import UVM_CACHING
from perfc.ir import UsageError
from perfc.passes import (
    COLUMN_WISE,
    COLUMNS,
    DATA_PARALLEL,
    HBM,
    KERNELS,
    ROW_WISE,
    SHARDING_TYPES,
    TABLE_ROW_WISE,
    TABLE_WISE,
    TIERS,
    USUAL_CACHE,
    Placement,
    Plan,
    World,
    is_share,
)
from perfc.planning.checks import one_of
from perfc.planning.cost import PlanCost, Table

Floats = NDArray[np.float64]

MOST_PARTS = 8
"""Parts of its columns that a search cuts a table into at most."""

MEMORIES = ("device", "host")
"""Memories of a rank, as columns of what tables take of them."""

SPREAD_WEIGHT = 1e-5
"""How much evenness counts beside the step: it only breaks ties."""


@attrs.frozen(eq=False)
class Option:
    """A way to cut a table; where its parts go is left open.

    What a part adds does not depend on where it goes.

    Attributes:
        kind: The sharding type.
        places: Places to choose from: ranks, nodes, or all ranks as one.
        loads: Of each part on each rank of its place, shape [parts, span, resources].
        memory_bytes: The same of `MEMORIES`, shape [parts, span, 2].
        tier: Where its rows lie.
        cache: Share of the rows that a cache holds, if the tier has one.

    """

    kind: str
    places: int
    loads: Floats
    memory_bytes: Floats
    tier: str = HBM
    cache: float = USUAL_CACHE

    @functools.cached_property
    def parts(self) -> int:
        """Parts of its columns."""
        return len(self.loads)

    @functools.cached_property
    def span(self) -> int:
        """Neighbouring ranks that a part goes to."""
        return int(self.loads.shape[1])

    @functools.cached_property
    def flat_loads(self) -> Floats:
        """Its loads, [parts x span, resources]."""
        return self.loads.reshape(self.parts * self.span, -1)

    @functools.cached_property
    def flat_bytes(self) -> Floats:
        """Its memories, [parts x span, 2]."""
        return self.memory_bytes.reshape(self.parts * self.span, -1)

    @functools.cached_property
    def largest_bytes(self) -> Floats:
        """Memories of its largest part, [2]."""
        found: Floats = self.flat_bytes.max(axis=0)
        return found

    def ranks(self, places: Sequence[int]) -> list[int]:
        """Return the ranks of all parts, in the order of `flat_loads`."""
        if self.span == 1:
            return list(places)
        span = range(self.span)
        return [place * self.span + number for place in places for number in span]

    def placement(self, places: tuple[int, ...]) -> Placement:
        """Return how a plan says it."""
        everywhere = self.kind in (ROW_WISE, DATA_PARALLEL)
        kernel = "" if self.tier == HBM else KERNELS[self.tier]
        return Placement(self.kind, () if everywhere else places, kernel, self.cache)

    def spots(self) -> Iterator[tuple[int, ...]]:
        """Yield all choices of places; parts are alike, so their order is none."""
        return itertools.combinations(range(self.places), self.parts)


Choice = tuple[int, tuple[int, ...]]
"""The number of an option of a table, and the places of its parts."""


@attrs.frozen
class Tiers:
    """Tiers of memory that tables may go to.

    Attributes:
        names: Some of `TIERS`.
        cache: Share of the rows that a cache holds, of the tier that has one.
        host_bytes: What tables may take of a rank's host memory.

    Raises:
        UsageError: a tier is unknown, none is given, or the cache is none.

    """

    names: tuple[str, ...] = (HBM,)
    cache: float = USUAL_CACHE
    host_bytes: float = math.inf

    def __attrs_post_init__(self) -> None:
        """Check them."""
        for name in self.names or ("",):
            one_of("tier", name, TIERS)
        if not is_share(self.cache):
            msg = f"cache {self.cache:g}: expected more than 0, up to 1"
            raise UsageError(msg)


DEVICE_ONLY = Tiers()
"""All tables lie in device memory."""


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

    tables: tuple[Table, ...]
    cost: PlanCost
    world: World
    memory_bytes: float
    options: tuple[tuple[Option, ...], ...]
    host_bytes: float = math.inf
    tiers: tuple[str, ...] = (HBM,)

    @classmethod
    def of(  # noqa: PLR0913 - the public call; tiers have a default
        cls,
        tables: Sequence[Table],
        cost: PlanCost,
        world: World,
        memory_bytes: float,
        types: Sequence[str],
        *,
        tiers: Tiers = DEVICE_ONLY,
    ) -> Task:
        """Ask *cost* for what the parts of each table add.

        Raises:
            UsageError: a type is unknown, or none can be used.

        """
        unknown = [kind for kind in types if kind not in SHARDING_TYPES]
        if unknown or not types:
            known = ", ".join(SHARDING_TYPES)
            msg = f"sharding type {unknown[0] if unknown else ''!r} is none of {known}"
            raise UsageError(msg)
        options = tuple(
            tuple(_options(table, cost, world, types, tiers)) for table in tables
        )
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
        found: Floats = np.maximum(twice, 0.0) / once
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
        found: Floats = np.array(first) @ self.weights
        return found

    def keys(self, loads: Floats) -> Floats:
        """Return what a search makes least: the step, and evenness among equals.

        Args:
            loads: Of plans, ranks and resources, [..., ranks, resources].

        """
        by_rank = loads @ self.weights
        spread = np.sqrt(np.mean(by_rank * by_rank, axis=-1))
        found: Floats = self.cost.step_s(loads) + SPREAD_WEIGHT * spread
        return found


def _options(
    table: Table, cost: PlanCost, world: World, types: Sequence[str], tiers: Tiers
) -> Iterator[Option]:
    """Yield the ways to cut a table, those of the fastest tier first."""
    for tier, kind in itertools.product(TIERS, SHARDING_TYPES):
        on_host = tier != HBM
        if tier not in tiers.names or kind not in types:
            continue
        if on_host and kind == DATA_PARALLEL:
            continue
        kernel = KERNELS[tier] if on_host else ""
        for parts, places, span in cuts(kind, table, world):
            at = tuple(range(parts)) if kind not in (ROW_WISE, DATA_PARALLEL) else ()
            shards = cost.shards(table, Placement(kind, at, kernel, tiers.cache))
            loads = np.zeros((parts * span, len(cost.resources)))
            memory = np.zeros((parts * span, len(MEMORIES)))
            for shard in shards:
                loads[shard.rank] += shard.loads
                memory[shard.rank] += (shard.memory_bytes, shard.host_bytes)
            shape = (parts, span, -1)
            by_part = loads.reshape(shape), memory.reshape(shape)
            yield Option(kind, places, *by_part, tier, tiers.cache)


def cuts(kind: str, table: Table, world: World) -> Iterator[tuple[int, int, int]]:
    """Yield parts, places, and ranks of a place, for each way to cut a table."""
    if kind == TABLE_WISE:
        yield 1, world.ranks, 1
    elif kind in (ROW_WISE, DATA_PARALLEL):
        yield 1, 1, world.ranks
    elif kind == COLUMN_WISE:
        for parts in cuts_of(table.dim, min(world.ranks, MOST_PARTS)):
            yield parts, world.ranks, 1
    elif world.ranks % world.per_node:
        return
    elif kind == TABLE_ROW_WISE:
        yield 1, world.nodes, world.per_node
    else:
        for parts in cuts_of(table.dim, min(world.nodes, MOST_PARTS)):
            yield parts, world.nodes, world.per_node


def cuts_of(dim: int, most: int) -> list[int]:
    """Return into how many equal parts columns can go, if more than one."""
    return [
        parts
        for parts in range(2, most + 1)
        if dim % parts == 0 and dim // parts % COLUMNS == 0
    ]


@attrs.define(eq=False)
class Draft:
    """A plan that is being made.

    Attributes:
        task: What it is of.
        choices: Of each table its option and places; none yet.
        loads: Of each rank, [ranks, resources].
        used_bytes: Memories of each rank that tables take, [ranks, 2].

    """

    task: Task
    choices: list[Choice | None]
    loads: Floats
    used_bytes: Floats

    @classmethod
    def empty(cls, task: Task) -> Draft:
        """Return one without tables."""
        ranks = task.world.ranks
        loads = np.zeros((ranks, len(task.cost.resources)))
        used = np.zeros((ranks, len(MEMORIES)))
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

    def set(self, table: int, choice: Choice | None) -> None:
        """Place a table, or take it out."""
        for old, sign in ((self.choices[table], -1.0), (choice, 1.0)):
            if old is not None:
                self._add(self.task.options[table][old[0]], old[1], sign)
        self.choices[table] = choice

    def _add(self, option: Option, places: Sequence[int], sign: float) -> None:
        ranks = option.ranks(places)
        self.loads[ranks] += sign * option.flat_loads
        self.used_bytes[ranks] += sign * option.flat_bytes

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
        """By how much the fullest rank is too full; not above 0 if it fits."""
        return float((self.used_bytes - self.task.room_bytes).max())

    @property
    def plan(self) -> Plan:
        """Where each table goes."""
        found: dict[str, Placement] = {}
        for number, table in enumerate(self.task.tables):
            choice = self.choices[number]
            if choice is not None:
                option = self.task.options[number][choice[0]]
                found[table.name] = option.placement(choice[1])
        return found


def _choice(options: Sequence[Option], placement: Placement) -> Choice:
    """Return which option a plan has chosen.

    Raises:
        UsageError: it is none of those.

    """
    tier, cache = placement.tier or HBM, placement.cache
    for number, option in enumerate(options):
        places = placement.places or (0,)
        cached = option.tier != UVM_CACHING or option.cache == cache
        alike = option.kind == placement.kind and option.tier == tier and cached
        if alike and option.parts == len(places):
            return number, places
    msg = f"no option is {placement.kind} in {len(placement.places)} parts"
    raise UsageError(msg)
