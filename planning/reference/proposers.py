"""Proposals of ways to shard all tables, as TorchRec's planner tries them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from perfc.passes import World
from perfc.planning.reference.options import KINDS, ShardingOption
from perfc.planning.reference.partitioners import Proposal

Options = Sequence[Sequence[ShardingOption]]
"""Options of each table: all ways to shard it."""

Proposer = Callable[[Options, World, float], Iterator[Proposal]]
"""Yields proposals for ranks of so many bytes each, the most promising first."""

MOST_PROPOSALS = 10_000
"""Most proposals of a grid: as many as TorchRec tries."""

_BINS_OF_RANK = 100
_MOST_BINS = 1600


def greedy_proposals(
    options: Options, world: World, memory_bytes: float
) -> Iterator[Proposal]:
    """Start with what is fastest; give up the fastest where most memory is taken.

    This is `GreedyProposer`. Each proposal takes the next option of the table that
    takes most memory and has one left.
    """
    yield from _greedy(options, _slowest)


def greedy_sum_proposals(
    options: Options, world: World, memory_bytes: float
) -> Iterator[Proposal]:
    """Like `greedy_proposals`, but the sum of all shards makes an option fast."""
    yield from _greedy(options, _total)


def _slowest(option: ShardingOption) -> float:
    return option.slowest_s


def _total(option: ShardingOption) -> float:
    return option.total_s


def _greedy(
    options: Options, key: Callable[[ShardingOption], float]
) -> Iterator[Proposal]:
    ranked = [sorted(each, key=key) for each in options]
    at = [0] * len(ranked)
    while True:
        proposal = [ranked[table][nth] for table, nth in enumerate(at)]
        yield proposal
        left = [table for table, nth in enumerate(at) if nth + 1 < len(ranked[table])]
        if not left:
            return
        at[max(left, key=lambda table: proposal[table].total_bytes)] += 1


def uniform_proposals(
    options: Options, world: World, memory_bytes: float
) -> Iterator[Proposal]:
    """Shard all tables alike, in each way that all of them can be; `UniformProposer`.

    Of several kernels that a kind has, each table takes the fastest.
    """
    for kind in KINDS:
        alike = [[each for each in table if each.kind == kind] for table in options]
        if all(alike):
            yield [min(table, key=_slowest) for table in alike]


def grid_proposals(
    options: Options, world: World, memory_bytes: float
) -> Iterator[Proposal]:
    """Try everything, up to `MOST_PROPOSALS`; `GridSearchProposer`."""
    ranked = [sorted(each, key=_total) for each in options]
    yield from itertools.islice(itertools.product(*ranked), MOST_PROPOSALS)


def dynamic_proposals(
    options: Options, world: World, memory_bytes: float
) -> Iterator[Proposal]:
    """Find for each amount of memory what takes least together.

    This is `DynamicProgrammingProposer`: the memory of all ranks is cut into bins, and
    table by table the least seconds are kept that end in each bin. One proposal
    for each bin that is reached, the fullest first.
    """
    bins = min(_BINS_OF_RANK * world.ranks, _MOST_BINS)
    room = memory_bytes * world.ranks
    used, seconds = np.zeros(1), np.zeros(1)
    steps: list[tuple[NDArray[np.intp], NDArray[np.intp]]] = []
    for table in options:
        need = np.asarray([option.total_bytes for option in table])
        takes = np.asarray([option.total_s for option in table])
        filled = used[:, np.newaxis] + need
        # Where the least seconds of each bin stand, by bins; those that fit.
        flat = filled.ravel()
        fitting = np.flatnonzero(flat <= room)
        order = fitting[
            np.argsort((seconds[:, np.newaxis] + takes).ravel()[fitting], kind="stable")
        ]
        bin_ = np.minimum(flat[order] / room * bins, bins - 1).astype(np.int64)
        _, first = np.unique(bin_, return_index=True)
        kept = order[first]
        before, option = np.divmod(kept, len(table))
        used, seconds = filled.ravel()[kept], seconds[before] + takes[option]
        steps.append((before, option))
    for state in range(len(used) - 1, -1, -1):
        yield _followed_back(options, steps, state)


def _followed_back(
    options: Options,
    steps: Sequence[tuple[NDArray[np.intp], NDArray[np.intp]]],
    state: int,
) -> Proposal:
    chosen: list[ShardingOption] = []
    for table, (before, option) in zip(reversed(options), reversed(steps), strict=True):
        chosen.append(table[int(option[state])])
        state = int(before[state])
    return chosen[::-1]


PROPOSERS: dict[str, Proposer] = {
    "greedy": greedy_proposals,
    "greedy-sum": greedy_sum_proposals,
    "uniform": uniform_proposals,
    "grid": grid_proposals,
    "dynamic": dynamic_proposals,
}
"""Proposers, by the names that a user gives."""
