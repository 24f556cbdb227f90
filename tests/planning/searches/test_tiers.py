"""Searches with tiers: what stays in device memory, and what goes to the host's."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence

import attrs
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.planning.tasks import ToyCost, random_tables

from perfc.costmodels import load_target
from perfc.ir import PerfcError, UsageError
from perfc.passes import DATA_PARALLEL, Placement, World
from perfc.passes.embeddings import COLUMN_WISE, ROW_WISE, TABLE_WISE
from perfc.planning.plans import Shard, Table, Tiers
from perfc.planning.searches import Draft, Task, local_search, search
from perfc.planning.searches.changes import Change
from perfc.planning.searches.exhaustive_search import exhaustive
from perfc.tools.request import Request
from perfc.tools.sharding.model import ShardModel, world_of

NEAR = 1.01
"""Of the best plan's step, what a search may take."""

SLOWER = {"fused_uvm": 20.0, "fused_uvm_caching": 8.0}


@attrs.frozen
class TieredCost:
    """The toy's cost; tables in host memory are slower, and take a cache or nothing.

    Attributes:
        toy: Of tables in device memory.

    """

    toy: ToyCost

    @property
    def resources(self) -> tuple[str, ...]:
        """Those of the toy."""
        return self.toy.resources

    def shards(self, table: Table, placement: Placement) -> Sequence[Shard]:
        """Each tier has its own factor of seconds."""
        plain = self.toy.shards(table, placement)
        kernel = placement.compute_kernel
        if not kernel:
            return plain
        held = placement.cache if kernel == "fused_uvm_caching" else 0.0
        return [
            Shard(
                one.rank,
                (SLOWER[kernel] * one.loads[0], one.loads[1]),
                held * one.memory_bytes,
                one.memory_bytes,
            )
            for one in plain
        ]

    def step_s(self, loads: NDArray[np.float64]) -> NDArray[np.float64]:
        """That of the toy."""
        return self.toy.step_s(loads)


ALL = ("hbm", "uvm-caching", "uvm")


def _task(
    seed: int,
    count: int,
    ranks: int,
    share: float,
    names: tuple[str, ...] = ALL,
    types: tuple[str, ...] = (TABLE_WISE,),
    host_share: float = math.inf,
) -> Task:
    """A task whose devices have room for a share of its tables."""
    tables, world = random_tables(seed, count), World(ranks, ranks)
    whole = sum(table.bytes for table in tables) / ranks
    tiers = Tiers(names, 0.2, host_share * whole)
    cost = TieredCost(ToyCost(world))
    return Task.of(tables, cost, world, share * whole, types, tiers=tiers)


def test_tables_that_pay_most_stay_on_devices() -> None:
    """On 60 small tasks that fill devices the search is as good as trying all plans."""
    ratios: list[float] = []
    for seed in range(60):
        count, ranks = (6, 2) if seed % 2 else (4, 3)
        names = (ALL, ("hbm", "uvm"), ("hbm", "uvm-caching"))[seed % 3]
        host_share = math.inf if seed % 4 else 1.5
        share = (0.3, 0.6, 0.9)[seed // 3 % 3]
        task = _task(seed, count, ranks, share, names, host_share=host_share)
        best = exhaustive(task)
        if best is not None:
            found = search(task)[0].draft
            assert found.excess_bytes <= 0
            ratios.append(found.step_s / best.step_s)

    assert len(ratios) > 40
    assert NEAR >= max(ratios)


def _alike_task(seed: int) -> Task:
    """Tables that are much alike, and devices with room for half of them."""
    chance, world = random.Random(seed), World(8, 8)
    sizes = [(chance.randrange(5, 30), chance.randrange(10, 60)) for _ in range(60)]
    tables = [
        Table(name=f"t{n}", rows=rows * 100_000, dim=64, pooling=float(pooling))
        for n, (rows, pooling) in enumerate(sizes)
    ]
    half = 0.5 * sum(t.bytes for t in tables) / 8
    cost = TieredCost(ToyCost(world))
    return Task.of(tables, cost, world, half, (TABLE_WISE,), tiers=Tiers(ALL))


def _none(draft: Draft, tables: Iterable[int]) -> Iterator[Change]:
    """Yield no change."""
    yield from ()


def test_full_devices_are_made_room_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trading tables of full devices for others gains some percent on average."""
    tasks = [_alike_task(seed) for seed in range(2)]
    traded = [search(task)[0].draft.step_s for task in tasks]
    monkeypatch.setattr(local_search, "evictions", _none)
    moved = [search(task)[0].draft.step_s for task in tasks]

    assert 0.97 * sum(moved) >= sum(traded)


def test_both_memories_are_kept_to() -> None:
    """What a plan takes of each is the sum over its shards, and not too much."""
    task = _task(5, 8, 2, 0.5, host_share=1.5)
    draft = search(task)[0].draft
    used = np.zeros((2, 2))
    for table in task.tables:
        for one in task.cost.shards(table, draft.plan[table.name]):
            used[one.rank] += (one.memory_bytes, one.host_bytes)

    np.testing.assert_allclose(draft.used_bytes, used, rtol=1e-9, atol=1.0)
    assert (used <= task.room_bytes).all()
    assert (used.max(axis=0) > 0).all()
    again = Draft.of_plan(task, draft.plan)
    np.testing.assert_allclose(again.loads, draft.loads)


def test_tiers_are_not_used_where_all_fits() -> None:
    """With room for everything the plan is that of device memory alone."""
    task = _task(2, 6, 2, 3.0)

    assert {""} == {p.tier for p in search(task)[0].plan.values()}


def test_data_parallel_tables_stay_on_devices() -> None:
    """Only sharded tables can lie in host memory."""
    task = _task(2, 2, 2, 3.0, types=(TABLE_WISE, DATA_PARALLEL))
    found = {(o.kind, o.tier) for options in task.options for o in options}

    assert {(TABLE_WISE, tier) for tier in ALL} | {(DATA_PARALLEL, "hbm")} == found


@pytest.mark.parametrize(
    ("share", "names", "host_share", "problem"),
    [
        (0.5, ("hbm",), math.inf, r"host memory \(--tiers hbm,uvm-caching\)"),
        (0.5, ("hbm", "uvm"), 0.2, r"more host memory \(--host-memory\)"),
        (0.01, ("uvm-caching",), math.inf, "takes at least"),
    ],
)
def test_why_nothing_fits(
    share: float, names: tuple[str, ...], host_share: float, problem: str
) -> None:
    """What is too small is named, and what would help."""
    with pytest.raises(PerfcError, match=problem):
        search(_task(1, 6, 2, share, names, host_share=host_share))


@pytest.mark.parametrize(
    ("names", "cache", "problem"),
    [
        (("disk",), 0.2, "tier 'disk' is none of hbm, uvm-caching, uvm"),
        ((), 0.2, "tier '' is none of"),
        (("uvm-caching",), 0.0, "cache 0: expected more than 0, up to 1"),
        (("uvm-caching",), math.nan, "cache nan: expected"),
    ],
)
def test_tiers_that_are_none(
    names: tuple[str, ...], cache: float, problem: str
) -> None:
    """Unknown tiers and caches of no rows are refused."""
    with pytest.raises(UsageError, match=problem):
        Tiers(names, cache)


def _random_plan(task: Task, chance: random.Random) -> Draft:
    """A share of the tables in host memory, all on any ranks."""
    draft, share = Draft.empty(task), chance.choice([0.1, 0.5, 1.0])
    for table, options in enumerate(task.options):
        on_host = chance.random() < share
        fitting = [n for n, o in enumerate(options) if (o.tier != "hbm") == on_host]
        number = chance.choice(fitting)
        option = options[number]
        spot = chance.sample(range(option.places), option.parts)
        draft.set(table, (number, tuple(sorted(spot))))
    return draft


@pytest.mark.parametrize(
    ("text", "system", "batch", "types", "tiers", "mode"),
    [
        (
            *("dlrm-mlperf", "dgx-a100", 8192, (TABLE_WISE, COLUMN_WISE)),
            *(("hbm", "uvm"), "training"),
        ),
        (
            *("dlrm-default:tables=24", "dgx-h100", 2048, (TABLE_WISE, ROW_WISE)),
            *(ALL, "training"),
        ),
        (
            *("dcnv2-mlperf", "dgx-h100", 4096, (TABLE_WISE, COLUMN_WISE)),
            *(("hbm", "uvm-caching"), "inference"),
        ),
    ],
)
def test_near_the_whole_pipeline(
    text: str,
    system: str,
    batch: int,
    types: tuple[str, ...],
    tiers: tuple[str, ...],
    mode: str,
) -> None:
    """The compact price of random plans is within 5 % of the pipeline on average."""
    target, allowed = load_target(system), Tiers(tiers)
    world = world_of(target, 8)
    asked = Request(model=text, batch=batch, mode=mode)
    model = ShardModel(request=asked, target=target, world=world)
    cost, chance = model.cost(types, allowed), random.Random(0)
    task = Task.of(model.tables, cost, world, 1e12, types, tiers=allowed)
    drafts = [_random_plan(task, chance) for _ in range(4)]
    whole = [model.report(draft.plan).time_us * 1e-6 for draft in drafts]
    errors = [abs(d.step_s / w - 1) for d, w in zip(drafts, whole, strict=True)]

    assert np.mean(errors) <= 0.05
    assert max(whole) > 1.05 * min(whole)


def test_a_device_holds_the_cache_only() -> None:
    """Rows lie in host memory; the cache and its lists on the device."""
    target = load_target("dgx-a100")
    world = world_of(target, 2)
    asked = Request(model="dlrm-default:tables=4", batch=512, mode="inference")
    model = ShardModel(request=asked, target=target, world=world)
    cost = model.cost((TABLE_WISE,), Tiers(ALL, 0.25))
    kernels = ("", "fused_uvm_caching", "fused_uvm")
    plain, cached, none = (
        cost.shards(model.tables[0], Placement(TABLE_WISE, (0,), kernel, 0.25))[0]
        for kernel in kernels
    )
    rows, row_bytes = 1_000_000, 64 * 4

    assert rows * row_bytes == plain.memory_bytes - none.memory_bytes
    lists = rows * (4 + 16 * 0.25)
    assert rows * row_bytes * 0.25 + lists == cached.memory_bytes - none.memory_bytes
    held = [one.host_bytes for one in (plain, cached, none)]
    assert [0.0, rows * row_bytes, rows * row_bytes] == held
