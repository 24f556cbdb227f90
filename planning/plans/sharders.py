"""The sharders that Lin et al. let their predictions choose among: whole tables.

Three look at no table at all; five sort tables by a weight and give the heaviest left
to the rank with the least so far, as the baselines of DreamShard do
(arXiv 2210.02023).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from perfc.ir import UsageError
from perfc.passes import Placement, Plan, World
from perfc.passes.embeddings import TABLE_WISE
from perfc.planning.plans.checks import check_tables, one_of
from perfc.planning.plans.cost import Table
from perfc.planning.plans.ties import least, ranking

_CEILING = float("inf")


class _Sharder(Protocol):
    def __call__(self, tables: Sequence[Table], ranks: int, seed: int) -> list[int]:
        """Return the rank of each table."""
        ...


def sharder_plan(
    name: str,
    tables: Sequence[Table],
    world: World,
    *,
    seed: int = 0,
    memory_bytes: float = _CEILING,
) -> Plan | None:
    """Return the plan of one sharder.

    Args:
        name: One of `SHARDERS`.
        tables: The tables to place.
        world: The ranks.
        seed: Of `random`.
        memory_bytes: What tables may take on a rank: greedy sharders pass over ranks
            that are full.

    Returns:
        None where a rank has more than it can hold.

    """
    one_of("sharder", name, SHARDERS)
    check_tables(tables)
    if world.ranks < 1:
        msg = f"sharder {name}: {world.ranks} ranks, expected 1 or more"
        raise UsageError(msg)
    if name in WEIGHTS:
        places = _greedy(tables, world.ranks, memory_bytes, WEIGHTS[name])
    else:
        places = _BLIND[name](tables, world.ranks, seed)
    if places is None or not _fits(tables, places, world.ranks, memory_bytes):
        return None
    return {
        table.name: Placement(TABLE_WISE, (rank,))
        for table, rank in zip(tables, places, strict=True)
    }


def sharder_plans(
    tables: Sequence[Table],
    world: World,
    *,
    seed: int = 0,
    memory_bytes: float = _CEILING,
) -> Mapping[str, Plan]:
    """Return the plans of all sharders, by name, but for those that do not fit."""
    found = {
        name: sharder_plan(name, tables, world, seed=seed, memory_bytes=memory_bytes)
        for name in SHARDERS
    }
    return {name: plan for name, plan in found.items() if plan is not None}


def _naive(tables: Sequence[Table], ranks: int, seed: int) -> list[int]:
    """Assign them round robin."""
    return [at % ranks for at in range(len(tables))]


def _naive_chunk(tables: Sequence[Table], ranks: int, seed: int) -> list[int]:
    """Cut the list into pieces that differ by one table at most."""
    return [at * ranks // len(tables) for at in range(len(tables))]


def _random(tables: Sequence[Table], ranks: int, seed: int) -> list[int]:
    """Draw a rank for each table."""
    chance = random.Random(seed)
    return [chance.randrange(ranks) for _ in tables]


_BLIND: Mapping[str, _Sharder] = {
    "naive": _naive,
    "naive_chunk": _naive_chunk,
    "random": _random,
}


def _dim(table: Table) -> float:
    return float(table.dim)


def _lookup(table: Table) -> float:
    return table.dim * table.pooling


def _norm_lookup(table: Table) -> float:
    """Return the elements that a sample reads for each row that there is.

    The paper names this weight without saying what it is; this is what the words say.
    """
    return _lookup(table) / table.rows


def _size_lookup(table: Table) -> float:
    return _lookup(table) * math.log10(table.rows)


WEIGHTS: Mapping[str, Callable[[Table], float]] = {
    "dim_greedy": _dim,
    "size_greedy": lambda table: table.bytes,
    "lookup_greedy": _lookup,
    "norm_lookup_greedy": _norm_lookup,
    "size_lookup_greedy": _size_lookup,
}
"""What each greedy sharder takes a table to weigh."""

SHARDERS = (*_BLIND, *WEIGHTS)
"""All of them: the seven of the paper, and `dim_greedy`."""


def _greedy(
    tables: Sequence[Table],
    ranks: int,
    memory_bytes: float,
    weight: Callable[[Table], float],
) -> list[int] | None:
    """Give each table, heaviest first, to the rank that carries least and has room."""
    carried, used = [0.0] * ranks, [0.0] * ranks
    places = [0] * len(tables)
    for at in ranking([-weight(table) for table in tables]):
        need = tables[at].bytes
        open_ = [rank for rank in range(ranks) if used[rank] + need <= memory_bytes]
        if not open_:
            return None
        emptier = [open_[n] for n in ranking([used[rank] for rank in open_])]
        rank = emptier[least([carried[rank] for rank in emptier])]
        places[at] = rank
        carried[rank] += weight(tables[at])
        used[rank] += need
    return places


def _fits(
    tables: Sequence[Table], places: Sequence[int], ranks: int, memory_bytes: float
) -> bool:
    used = [0.0] * ranks
    for table, rank in zip(tables, places, strict=True):
        used[rank] += table.bytes
    return max(used) <= memory_bytes
