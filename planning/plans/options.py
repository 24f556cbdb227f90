"""Ways to place each table, as arrays that a search adds up."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats
from perfc.ir import UsageError
from perfc.passes import (
    DATA_PARALLEL,
    HBM,
    TIERS,
    USUAL_CACHE,
    Placement,
    World,
    embeddings,
    is_share,
)
from perfc.planning.plans.checks import one_of
from perfc.planning.plans.cost import PlanCost, Table
from perfc.planning.plans.ties import on_grid

MOST_PARTS = 8
"""Parts of its columns that a search cuts a table into at most."""

MEMORIES = ("device", "host")
"""Memories of a rank, as columns of what tables take of them."""


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

    @property
    def content(self) -> tuple[str, str, bytes, bytes]:
        """What it adds, to compare it with those of another table."""
        added = self.loads.tobytes(), self.memory_bytes.tobytes()
        return self.kind, self.tier, *added

    def ranks(self, places: Sequence[int]) -> list[int]:
        """Return the ranks of all parts, in the order of `flat_loads`."""
        if self.span == 1:
            return list(places)
        span = range(self.span)
        return [place * self.span + number for place in places for number in span]

    def placement(self, places: tuple[int, ...]) -> Placement:
        """Return how a plan says it."""
        everywhere = self.kind in (embeddings.ROW_WISE, DATA_PARALLEL)
        kernel = "" if self.tier == HBM else embeddings.KERNELS[self.tier]
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


def by_name(tables: Iterable[Table]) -> list[Table]:
    """Sort tables by name; `t2` comes before `t10`."""
    return sorted(tables, key=lambda table: _name_order(table.name))


def _name_order(name: str) -> tuple[tuple[str, int, str], ...]:
    parts = re.findall(r"([^0-9]*)([0-9]*)", name)
    numbers = ((text, digits.lstrip("0")) for text, digits in parts)
    return tuple((text, len(number), number) for text, number in numbers)


def options_of(
    tables: Sequence[Table],
    cost: PlanCost,
    world: World,
    types: Sequence[str],
    tiers: Tiers,
) -> tuple[tuple[Option, ...], ...]:
    """Return the ways to cut each table, those of the fastest tier first.

    What they add is rounded, so that no sum of it loses anything.
    """
    found = [list(_options(table, cost, world, types, tiers)) for table in tables]
    loads = _most(found, lambda option: option.flat_loads)
    memory = _most(found, lambda option: option.flat_bytes)
    return tuple(
        tuple(
            attrs.evolve(
                option,
                loads=on_grid(option.loads, loads),
                memory_bytes=on_grid(option.memory_bytes, memory),
            )
            for option in own
        )
        for own in found
    )


def _most(
    options: Sequence[Sequence[Option]], amounts: Callable[[Option], Floats]
) -> Floats:
    largest = [
        np.max([amounts(o).sum(axis=0) for o in own], 0) for own in options if own
    ]
    found: Floats = np.sum(largest, axis=0)
    return found


def _options(
    table: Table, cost: PlanCost, world: World, types: Sequence[str], tiers: Tiers
) -> Iterator[Option]:
    """Yield the ways to cut a table, those of the fastest tier first."""
    for tier, kind in itertools.product(TIERS, embeddings.SHARDING_TYPES):
        on_host = tier != HBM
        if tier not in tiers.names or kind not in types:
            continue
        if on_host and kind == DATA_PARALLEL:
            continue
        kernel = embeddings.KERNELS[tier] if on_host else ""
        for parts, places, span in cuts(kind, table, world):
            at = (
                tuple(range(parts))
                if kind not in (embeddings.ROW_WISE, DATA_PARALLEL)
                else ()
            )
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
    if kind == embeddings.TABLE_WISE:
        yield 1, world.ranks, 1
    elif kind in (embeddings.ROW_WISE, DATA_PARALLEL):
        yield 1, 1, world.ranks
    elif kind == embeddings.COLUMN_WISE:
        for parts in cuts_of(table.dim, min(world.ranks, MOST_PARTS)):
            yield parts, world.ranks, 1
    elif world.ranks % world.per_node:
        return
    elif kind == embeddings.TABLE_ROW_WISE:
        yield 1, world.nodes, world.per_node
    else:
        for parts in cuts_of(table.dim, min(world.nodes, MOST_PARTS)):
            yield parts, world.nodes, world.per_node


def cuts_of(dim: int, most: int) -> list[int]:
    """Return into how many equal parts columns can go, if more than one."""
    return [
        parts
        for parts in range(2, most + 1)
        if dim % parts == 0 and dim // parts % embeddings.COLUMNS == 0
    ]
