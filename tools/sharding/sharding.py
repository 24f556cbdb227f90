"""What `perfc shard` does: search plans, and compare them with given ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import attrs
import numpy as np

from perfc.costmodels import Target
from perfc.costmodels.kernels import Floats
from perfc.ir import PerfcError
from perfc.ir.support import format_bytes
from perfc.passes import Plan
from perfc.planning.plans import MEMORIES, PlanCost, ranking
from perfc.planning.searches import SEARCHES, Task, search
from perfc.tools.sharding.model import ShardModel
from perfc.tools.sharding.report import Sharding
from perfc.tools.sharding.search import DATA_PARALLEL, PlanSearch, RankedPlan


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
        # Refuse a given plan that exceeds the memory of a rank.
        if not one.fits:
            excess = one.used_bytes - one.room_bytes
            memory = int(np.argmax(excess.max(axis=0)))
            rank = int(np.argmax(excess[:, memory]))
            most = float(one.used_bytes[rank, memory])
            room = float(one.room_bytes[memory])
            where = " of the host's memory" if MEMORIES[memory] == "host" else ""
            msg = (
                f"plan {one.name} does not fit: tables take {format_bytes(most)} of "
                "rank "
                f"{rank}{where}, they may take {format_bytes(room)}"
            )
            raise PerfcError(msg)
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
        ranked=tuple(plans),
        room_bytes=room_bytes,
        dense_bytes=dense_bytes,
        seconds=seconds,
    )


def _room_bytes(target: Target, dense_bytes: float) -> float:
    """Return the bytes that a rank has for tables."""
    usable_bytes = target.device.memory.usable_bytes
    if dense_bytes < usable_bytes:
        return usable_bytes - dense_bytes
    msg = (
        f"no room for tables: the rest of the step takes {format_bytes(dense_bytes)} "
        f"of a rank, {target.name} has {format_bytes(usable_bytes)}; use a smaller "
        "batch"
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
