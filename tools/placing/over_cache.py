"""What a placement saves over the size of its cache, drawn on its page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from perfc.costmodels.sheets import DRAM, find_tier
from perfc.ir import PerfcError
from perfc.ir.support import US, counted
from perfc.planning.searches import search_tiers
from perfc.tools import pages
from perfc.tools.placing.placed_plan import PlacedPlan

_SIZES = 8
"""Sizes of the cache that are drawn, evenly up to its memory."""


def over_cache(
    best: PlacedPlan, saving_of: Callable[[PlacedPlan], float | None], watts: str
) -> Iterator[pages.Part]:
    """Draw the power saved with each size of the cache; else the time of a query.

    Args:
        best: The placement that was found.
        saving_of: Share of the power that a placement saves; None if unknown.
        watts: A remark on whose watts they are.

    """
    plans = [*_cached_plans(best)]
    if not plans:
        return
    savings = [saving_of(plan) for _, plan in plans]
    values = [100 * saving for saving in savings if saving is not None]
    what, unit = "Power saved", "%"
    if len(values) < len(plans):
        what, unit, watts = "Time of a query", "us", ""
        values = [plan.time_s * US for _, plan in plans]
    axes = pages.Axis("size of the cache", "bytes"), pages.Axis(what.lower(), unit)
    sizes = [size for size, _ in plans]
    names = ", ".join(tier.name for tier in best.setting.tiers)
    text = (
        "Each point is the best placement with a cache of that size, which tables in "
        f"DRAM have no room of; tiers: {names}.{watts}"
    )
    series = [
        pages.Series(best.name, sizes, values, drawn="line", label="end"),
        pages.Series("placements", sizes, values),
    ]
    chart = pages.Chart(*axes, series, text)
    yield pages.Section(f"{what} over the size of the cache", [chart])


def _cached_plans(best: PlacedPlan) -> Iterator[tuple[float, PlacedPlan]]:
    """Yield sizes of the cache, and the best placement with each that can be."""
    for size in counted(_sizes(best), "sizes of the cache"):
        question = attrs.evolve(best.site.question, cache_bytes=size)
        site = attrs.evolve(best.site, question=question)
        try:
            task = site.task(question.tiers)
        except PerfcError:  # larger than its memory
            continue
        plan = search_tiers(task, (best.places,))
        if not plan.wrong:
            name = best.name
            yield size, PlacedPlan(name=name, site=site, task=task, places=plan.places)


def _sizes(best: PlacedPlan) -> Sequence[float]:
    """Return sizes up to the memory that the cache lies in; none without a cache."""
    if not any(best.task.cached):
        return ()
    tiers = {tier.name: tier for tier in best.setting.tiers}
    room = 0.0
    if DRAM in tiers:
        room = tiers[DRAM].capacity_bytes + best.task.cache_bytes
    else:
        try:
            room = find_tier(best.site.target, DRAM).capacity_bytes
        except PerfcError:  # no memory of the host is known, so there is no cache
            return ()
    return [room * number / _SIZES for number in range(_SIZES)]
