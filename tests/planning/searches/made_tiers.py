"""Placements that tests of searches make, and the best of all by trying each."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import attrs
from tests.costmodels.tiers.made import a_tier

from perfc.costmodels.locality import Uniform, ZipfMandelbrot
from perfc.costmodels.machine import Tier
from perfc.costmodels.sheets import load_memory
from perfc.costmodels.tiers import TieredTable
from perfc.planning.searches import HostService, TierSetting, TierTask

DRAM = a_tier(
    name="dram",
    granularity_bytes=64,
    bus_granularity_bytes=64,
    reads_per_s=1.28e11 / 64,
    read_latency_s=9e-8,
    read_bytes_per_s=1.28e11,
    knee=math.inf,
    usd_per_byte=4e-9,
)


def a_setting(tiers: tuple[Any, ...], **changed: Any) -> TierSetting:
    """Return what placements in some tiers have in common."""
    fields: dict[str, Any] = {
        "native": "dram",
        "base_s": 1e-4,
        "dense_s": 2e-5,
        "lookup_s": 2e-5,
        "queries_per_s": 100.0,
        "in_flight": 32.0,
        "fleet_per_s": 100.0,
        "service": HostService(compute_s=1e-4, watts=220.0),
    }
    return TierSetting(tiers=tiers, **{**fields, **changed})


def a_task(seed: int, tables: int, objective: str, *, cached: bool) -> TierTask:
    """Return tables, and tiers that have room for all but not for any placement."""
    draw = random.Random(seed)
    listed = tuple(
        TieredTable(
            name=f"t{number}",
            rows=int(10 ** draw.uniform(4, 7)),
            row_bytes=draw.choice([64, 96, 128, 256]),
            lookups=float(draw.choice([1, 5, 20, 400])),
            popularity=draw.choice([Uniform(), ZipfMandelbrot(1.05, 0.0)]),
        )
        for number in range(tables)
    )
    whole = sum(table.nbytes for table in listed)
    optane = attrs.evolve(
        load_memory("optane"), capacity_bytes=whole * (1 if cached else 0.6)
    )
    tiers: tuple[Tier, ...] = (attrs.evolve(DRAM, capacity_bytes=whole * 0.5), optane)
    if not cached:
        tiers = (*tiers, load_memory("nand"))
    priced = tuple(
        attrs.evolve(tier, usd_per_byte=tier.usd_per_byte or 5e-10) for tier in tiers
    )
    fleet = draw.choice([100.0, 3e5])
    setting = a_setting(priced, objective=objective, fleet_per_s=fleet)
    return TierTask(
        setting=setting,
        tables=listed,
        cached=(False, *[True] * (len(tiers) - 1)),
        cache_bytes=whole * 0.02 if cached else 0.0,
    )


def exact_score(task: TierTask, places: tuple[int, ...]) -> float:
    """Return the score of a placement by costs of tables one by one."""
    costs = task.costs(places)
    demands = task.demands(costs, places)
    return task.setting.score(demands, task.native_share(places))[1]


def best_of_all(task: TierTask) -> float:
    """Return the least score of all placements."""
    ways = range(len(task.setting.tiers))
    every = itertools.product(ways, repeat=len(task.tables))
    return min(exact_score(task, places) for places in every)
