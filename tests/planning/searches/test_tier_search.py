"""Placements in tiers are the best there are, and obey what must hold of them."""

from __future__ import annotations

import math

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.costmodels.tiers.made import TABLES, TIERS, a_tier
from tests.planning.searches.made_tiers import (
    DRAM,
    a_setting,
    a_task,
    best_of_all,
    exact_score,
)

from perfc.costmodels.machine import Tier
from perfc.costmodels.tiers import TieredTable
from perfc.ir import PerfcError
from perfc.planning.searches import (
    EXACT,
    LOCAL,
    OBJECTIVES,
    LatencyTarget,
    TierTask,
    densest_first,
    search_tiers,
    smallest_first,
)
from perfc.planning.searches.tier_bound import Relaxation, used_sets
from perfc.planning.searches.tier_task import Placed

CASES = [(seed, OBJECTIVES[seed % 3], seed % 5 == 0) for seed in range(100)]


@pytest.mark.parametrize(("seed", "objective", "cached"), CASES)
def test_small_cases_are_the_best_of_all(
    seed: int,
    objective: str,
    cached: bool,
) -> None:
    """Within 1 % of the best of all placements, each priced by itself."""
    task = a_task(seed, 5, objective, cached=cached)
    found = search_tiers(task)

    assert EXACT == found.name
    assert 0 == found.wrong
    assert exact_score(task, found.places) <= 1.01 * best_of_all(task)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(4))
def test_no_placement_is_below_the_bound(seed: int, objective: str) -> None:
    """The least of the bounds of all sets of tiers is one of all placements."""
    task = a_task(seed, 5, objective, cached=False)
    parts = [Relaxation(task, used, told, 0, 0) for used, told in used_sets(task)]
    bounds = [part.bound(math.inf).value for part in parts]

    assert min(bounds) <= best_of_all(task) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_searches_price_as_reports_do(seed: int) -> None:
    """Sums kept while tables move are those of tables priced one by one."""
    task = a_task(seed, 12, "time", cached=True)
    placed = Placed(task, densest_first(task))
    for table in range(0, 12, 2):
        placed.move(table, 1 - placed.places[table])
    places = tuple(placed.places)
    exact = task.demands(task.costs(places), places)

    for kept, summed in zip(placed.demands(), exact, strict=True):
        assert summed.stored_bytes == pytest.approx(kept.stored_bytes)
        assert summed.block_reads == pytest.approx(kept.block_reads, rel=5e-3)
        assert summed.bus_bytes == pytest.approx(kept.bus_bytes, rel=5e-3)
        assert summed.most_reads == pytest.approx(kept.most_reads, rel=2e-2)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_many_tables_are_no_worse_than_greedy(objective: str) -> None:
    """Local search begins from the greedy placements, and says that it is local."""
    task = a_task(1, 60, objective, cached=True)
    found = search_tiers(task)
    greedy = [
        Placed(task, one(task)).score() for one in (densest_first, smallest_first)
    ]

    assert LOCAL == found.name
    assert (found.wrong, found.score) <= min(greedy)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(3))
def test_more_room_is_never_worse(seed: int, objective: str) -> None:
    """A larger tier has every placement that a smaller one has."""
    task = a_task(seed, 6, objective, cached=False)
    first, *rest = task.setting.tiers
    more = attrs.evolve(first, capacity_bytes=first.capacity_bytes * 1.5)
    setting = attrs.evolve(task.setting, tiers=(more, *rest))
    larger = search_tiers(attrs.evolve(task, setting=setting))

    assert larger.score <= search_tiers(task).score * (1 + 1e-4)


def _task(tables: list[TieredTable], drive: Tier, cache_bytes: float) -> TierTask:
    named = tuple(attrs.evolve(t, name=f"t{n}") for n, t in enumerate(tables))
    room = attrs.evolve(DRAM, capacity_bytes=1e15)
    large = attrs.evolve(drive, capacity_bytes=1e15)
    setting = a_setting((room, large), queries_per_s=1e-3)
    return TierTask(
        setting=setting, tables=named, cached=(False, True), cache_bytes=cache_bytes
    )


SOME = st.lists(TABLES, min_size=1, max_size=4)


@settings(max_examples=40)
@given(tables=SOME, drive=TIERS, cache=st.floats(0, 1e9), more=st.floats(1, 10))
def test_hits_and_reads_are_lookups(
    tables: list[TieredTable], drive: Tier, cache: float, more: float
) -> None:
    """And a larger cache reads no more, of no table, wherever they lie."""
    task = _task(tables, drive, cache)
    places = [number % 2 for number in range(len(tables))]
    larger = attrs.evolve(task, cache_bytes=cache * more).costs(places)

    for cost, later in zip(task.costs(places), larger, strict=True):
        assert cost.lookups == pytest.approx(cost.hits + cost.reads, rel=1e-9)
        assert later.reads <= cost.reads * (1 + 1e-6) + 1e-9


@settings(max_examples=60)
@given(
    tables=SOME,
    drive=TIERS,
    field=st.sampled_from(["reads_per_s", "read_bytes_per_s", "read_latency_s"]),
    faster=st.floats(1, 10),
    objective=st.sampled_from(["time", "power"]),
)
def test_a_faster_tier_makes_no_placement_worse(
    tables: list[TieredTable], drive: Tier, field: str, faster: float, objective: str
) -> None:
    """Nor does a lower latency; in time, and in watts."""
    drive = attrs.evolve(drive, read_watts=10.0, idle_watts=5.0)
    factor = 1 / faster if field == "read_latency_s" else faster
    better = attrs.evolve(drive, **{field: getattr(drive, field) * factor})
    places = (1,) * len(tables)
    tasks = [_task(tables, each, 0.0) for each in (drive, better)]
    scores = [
        exact_score(
            attrs.evolve(t, setting=attrs.evolve(t.setting, objective=objective)),
            places,
        )
        for t in tasks
    ]

    assert scores[1] <= scores[0] * (1 + 1e-9)


@settings(max_examples=40)
@given(tables=SOME, drive=TIERS, load=st.floats(1e-3, 10), more=st.floats(1, 10))
def test_more_load_is_never_faster(
    tables: list[TieredTable], drive: Tier, load: float, more: float
) -> None:
    """A placement that can be under a load can be under less, and takes no longer."""
    task, places = _task(tables, drive, 0.0), (1,) * len(tables)
    low, high = (
        exact_score(
            attrs.evolve(task, setting=attrs.evolve(task.setting, queries_per_s=rate)),
            places,
        )
        for rate in (load, load * more)
    )

    assert low <= high * (1 + 1e-9)


@given(tables=SOME, drive=TIERS)
def test_all_tables_in_native_memory_are_the_base(
    tables: list[TieredTable], drive: Tier
) -> None:
    """The time is that of the base, to the last bit."""
    task = _task(tables, drive, 1e6)

    assert task.setting.base_s == exact_score(task, (0,) * len(tables))


def test_what_overlaps_is_hidden() -> None:
    """By hand: 100 us of a drive beside 20 us of dense layers, and none beside."""
    drive = a_tier(read_latency_s=1e-4, reads_per_s=1e9, read_bytes_per_s=1e12)
    table = TieredTable(name="t", rows=10**6, row_bytes=4096, lookups=8.0)
    task = _task([table], drive, 0.0)
    demands = task.demands(task.costs([1]), [1])
    waits = task.setting.waits(demands)

    assert "drive" == waits.bound
    assert 1e-4 == pytest.approx(waits.seconds)
    assert 8e-5 == pytest.approx(task.setting.exposed_s(waits, 0.0))
    assert 6e-5 == pytest.approx(task.setting.exposed_s(waits, 1.0))
    alone = attrs.evolve(task.setting, overlap=False)
    assert 1e-4 == pytest.approx(alone.exposed_s(waits, 1.0))


def test_a_latency_target_keeps_tables_out_of_a_drive() -> None:
    """Watts alone would use one drive; within the target a faster one is taken."""
    task = a_task(2, 5, "power", cached=False)
    free = search_tiers(task)
    seconds = search_tiers(
        attrs.evolve(task, setting=attrs.evolve(task.setting, objective="time"))
    ).score
    target = LatencyTarget(seconds=seconds * 1.01)
    setting = attrs.evolve(task.setting, target=target)
    held = search_tiers(attrs.evolve(task, setting=setting))
    demands = task.demands(task.costs(held.places), held.places)

    assert 0 == held.wrong
    assert held.score >= free.score
    assert 0 == setting.lateness(demands, task.native_share(held.places))


def test_what_cannot_be_is_told_by_how_much() -> None:
    """A placement that exceeds a tier has a sum of shares, and no score."""
    task = a_task(0, 5, "time", cached=False)
    wrong, score = Placed(task, [0] * 5).score()

    assert 1.0 == pytest.approx(wrong)
    assert math.inf == score
    with pytest.raises(PerfcError, match="iB are missing"):
        task.setting.uses(task.demands(task.costs([0] * 5), [0] * 5))
