"""Partitioners: the ranks of a proposal's shards, as TorchRec's planner places them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.passes import Placement, Plan, World
from perfc.planning.plans import least
from perfc.planning.reference.options import EVERYWHERE, ShardingOption

Order = Literal["seconds", "memory_bytes"]

Proposal = Sequence[ShardingOption]
"""One way to shard each table."""


@attrs.frozen(eq=False)
class Partition:
    """A proposal whose shards have their ranks.

    Attributes:
        plan: Where each table goes.
        loads: Of ranks and resources of the cost, float64, shape `(ranks, resources)`.
        seconds: The sum of what its shards take alone, of each rank.
        memory_bytes: Of each rank's device.

    """

    plan: Plan
    loads: NDArray[np.float64]
    seconds: NDArray[np.float64]
    memory_bytes: NDArray[np.float64]


Partitioner = Callable[[Proposal, World, float], Partition | None]
"""Places a proposal on ranks of so many bytes each; None where it does not fit."""


def greedy_partition(
    proposal: Proposal,
    world: World,
    memory_bytes: float,
    order: Order = "seconds",
) -> Partition | None:
    """Give each table, largest first, to the rank with the least so far, if it fits.

    Tables that all ranks hold come first. Tables that nodes share go to the node with
    the least. This is `GreedyPerfPartitioner`; by default TorchRec takes tables in the
    order of their memory.

    Args:
        proposal: How each table is sharded.
        world: The ranks.
        memory_bytes: What each rank's device holds.
        order: What makes a table large.

    Returns:
        None where a table fits nowhere.

    """
    placing = _Placing(memory_bytes, _none_yet(proposal, world))
    uniform = [option for option in proposal if option.kind in EVERYWHERE]
    others = [option for option in proposal if option.kind not in EVERYWHERE]
    others.sort(key=_SIZES[order], reverse=True)
    found: dict[str, Placement] = {}
    for option in (*uniform, *others):
        places = placing.put(option)
        if places is None:
            return None
        found[option.table.name] = option.placement(places)
    return attrs.evolve(placing.so_far, plan=found)


def memory_balanced_partition(
    proposal: Proposal,
    world: World,
    memory_bytes: float,
    tolerance: float = 0.02,
) -> Partition | None:
    """Halve the memory that ranks may use while the plan gets hardly slower.

    This is `MemoryBalancedPartitioner`: `greedy_partition`, repeated with a bound that
    is sought between what a rank must hold at least on average and what it held.

    Args:
        proposal: How each table is sharded.
        world: The ranks.
        memory_bytes: What each rank's device holds.
        tolerance: How much longer than without the bound the slowest rank may take.

    """
    best = greedy_partition(proposal, world, memory_bytes)
    if best is None:
        return None
    slowest_s = float(best.seconds.max()) * (1 + tolerance)
    least, most = float(best.memory_bytes.mean()), float(best.memory_bytes.max())
    for _ in range(_SEARCHES):
        bound = (least + most) / 2
        found = greedy_partition(proposal, world, bound, "memory_bytes")
        if found is None or float(found.seconds.max()) > slowest_s:
            least = bound
        else:
            best, most = found, float(found.memory_bytes.max())
    return best


_SEARCHES = 10

PARTITIONERS: dict[str, Partitioner] = {
    "greedy": greedy_partition,
    "memory-balanced": memory_balanced_partition,
}
"""Partitioners, by the names that a user gives."""


_SIZES: dict[Order, Callable[[ShardingOption], float]] = {
    "seconds": lambda option: option.total_s,
    "memory_bytes": lambda option: option.total_bytes,
}


def _none_yet(proposal: Proposal, world: World) -> Partition:
    resources = proposal[0].loads.shape[-1] if proposal else 0
    loads = np.zeros((world.ranks, resources))
    return Partition({}, loads, np.zeros(world.ranks), np.zeros(world.ranks))


@attrs.frozen(eq=False)
class _Placing:
    """Ranks that fill up."""

    memory_bytes: float
    so_far: Partition

    def put(self, option: ShardingOption) -> list[int] | None:
        """Place all parts of a table, each elsewhere; return their ranks or nodes."""
        taken: list[int] = []
        span = option.span
        for part in range(option.parts):
            place = self._place(option, part, taken)
            if place is None:
                return None
            ranks = slice(place * span, (place + 1) * span)
            self.so_far.loads[ranks] += option.loads[part]
            self.so_far.seconds[ranks] += option.seconds[part]
            self.so_far.memory_bytes[ranks] += option.memory_bytes[part]
            taken.append(place)
        return taken

    def _place(
        self, option: ShardingOption, part: int, taken: Sequence[int]
    ) -> int | None:
        """Return the place with the least to do that has room."""
        used, seconds = self.so_far.memory_bytes, self.so_far.seconds
        need = option.memory_bytes[part]
        if option.span > 1:
            seconds = seconds.reshape(-1, option.span).sum(axis=1)
            used = (used.reshape(-1, option.span) + need).max(axis=1)
        else:
            used = used + need[0]
        left = np.where(used <= self.memory_bytes, seconds, np.inf)
        left[taken] = np.inf
        place = least(left)
        return None if left[place] == np.inf else place
