"""Plans that are found as TorchRec's planner finds them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from perfc.ir import PerfcError, UsageError
from perfc.ir.support import format_bytes
from perfc.passes import Plan, World
from perfc.planning import plans
from perfc.planning.reference.options import KINDS, sharding_options
from perfc.planning.reference.partitioners import PARTITIONERS
from perfc.planning.reference.proposers import PROPOSERS, Options

DEFAULT_PROPOSERS = ("greedy", "greedy-sum", "uniform")
"""Proposers that TorchRec tries if nothing is said."""


@attrs.frozen(kw_only=True)
class Planned:
    """The best plan that was found.

    Attributes:
        plan: Where each table goes.
        step_s: What a step takes, by the cost that prices plans.
        memory_bytes: Of the device of each rank.
        proposals: How many ways to shard the tables were tried.
        fitting: How many of these fit in the memory.

    """

    plan: Plan
    step_s: float
    memory_bytes: tuple[float, ...]
    proposals: int
    fitting: int


@attrs.frozen(kw_only=True)
class TorchRecPlanner:
    """Searches for plans as `EmbeddingShardingPlanner` does.

    Every proposer proposes how to shard each table; the partitioner places a proposal
    on ranks; the plan with the least time by the cost is kept, the first of those that
    tie.

    Attributes:
        cost: What prices plans; `TorchRecCost` for the plans that TorchRec finds.
        world: The ranks.
        memory_bytes: What each rank's device has for tables.
        proposers: Names of `PROPOSERS`.
        partitioner: A name of `PARTITIONERS`.
        kinds: How tables may be sharded.
        kernels: What may look them up; an empty word is the usual kernel.

    """

    cost: plans.PlanCost
    world: World
    memory_bytes: float
    proposers: Sequence[str] = DEFAULT_PROPOSERS
    partitioner: str = "greedy"
    kinds: Sequence[str] = KINDS
    kernels: Sequence[str] = ("",)

    def __attrs_post_init__(self) -> None:
        """Refuse names that are unknown."""
        for name in self.proposers:
            plans.one_of("proposer", name, PROPOSERS)
        plans.one_of("partitioner", self.partitioner, PARTITIONERS)
        if math.isnan(self.memory_bytes) or self.memory_bytes <= 0:
            msg = f"planner: {self.memory_bytes} bytes of memory, expected more than 0"
            raise UsageError(msg)

    def plan(self, tables: Sequence[plans.Table]) -> Planned:
        """Return the best plan of *tables*."""
        plans.check_tables(tables)
        options = [
            sharding_options(table, self.cost, self.world, self.kinds, self.kernels)
            for table in tables
        ]
        for table, found in zip(tables, options, strict=True):
            if not found:
                kinds = ", ".join(self.kinds)
                msg = f"table {table.name!r}: cannot be sharded by any of {kinds}"
                raise PerfcError(msg)
        return self._best(tables, options)

    def _best(self, tables: Sequence[plans.Table], options: Options) -> Planned:
        partition = PARTITIONERS[self.partitioner]
        best: Planned | None = None
        proposals = fitting = 0
        for name in self.proposers:
            for proposal in PROPOSERS[name](options, self.world, self.memory_bytes):
                proposals += 1
                found = partition(proposal, self.world, self.memory_bytes)
                if found is None:
                    continue
                fitting += 1
                step_s = float(self.cost.step_s(found.loads))
                if best is None or plans.is_less(step_s, best.step_s):
                    memory = tuple(float(each) for each in found.memory_bytes)
                    plan = {table.name: found.plan[table.name] for table in tables}
                    best = Planned(
                        plan=plan,
                        step_s=step_s,
                        memory_bytes=memory,
                        proposals=0,
                        fitting=0,
                    )
        if best is None:
            raise PerfcError(self._no_room(options, proposals))
        return attrs.evolve(best, proposals=proposals, fitting=fitting)

    def _no_room(self, options: Options, proposals: int) -> str:
        least = sum(min(o.memory_bytes.sum() for o in table) for table in options)
        ranks, each = self.world.ranks, format_bytes(self.memory_bytes)
        return (
            f"none of {proposals} proposals fits in {ranks} x {each}: the "
            f"tables take {format_bytes(least)} at least; give more ranks or memory, "
            "or allow other kinds or kernels"
        )
