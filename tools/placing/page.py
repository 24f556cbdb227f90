"""A placement as a page: plans, tiers, tables, and what a cache of each size saves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from perfc.costmodels.sheets import DRAM, find_tier
from perfc.ir import PerfcError
from perfc.ir.support import US
from perfc.planning.searches import search_tiers
from perfc.tools import pages
from perfc.tools.charts import interval_text, plan_bars
from perfc.tools.placing import report
from perfc.tools.placing.placed_plan import PlacedPlan
from perfc.tools.placing.site import Site
from perfc.tools.reports import format_bytes, format_us

_SIZES = 8
"""Sizes of the cache that are drawn, evenly up to its memory."""

_ALL = 10**9


def place_page(
    found: report.Placement, say: Callable[[str], None] = lambda _: None
) -> str:
    """Return the page; it loads nothing from anywhere.

    Args:
        found: The placement.
        say: Told what is being done: each size of the cache is a search.

    """
    best = found.best
    plans = [
        plan_bars(found.plans, "Time of a query under each plan"),
        pages.quantity_table(report.plan_lines(found), "Plans"),
        *map(pages.Text, report.notes(found)),
    ]
    tiers = pages.quantity_table(report.tier_lines(best), "Tiers")
    tables = pages.quantity_table(report.table_lines(best, _ALL), "Tables", search=True)
    parts: list[pages.Part] = [
        _heading(found),
        pages.Remarks(found.diagnostics),
        pages.Section("Plans", plans),
        *_over_cache(found, say),
        pages.Section(f"Tiers under {best.name}", [tiers]),
        pages.Section(f"Tables under {best.name}", [tables]),
    ]
    if (scenario := found.scenario) is not None:
        stated = [*map(pages.Preformatted, report.scenario_parts(scenario))]
        parts.append(pages.Section(f"Scenario {scenario.name}", stated))
    return pages.page(f"perfc place: {found.model}", parts)


def _heading(found: report.Placement) -> pages.Heading:
    best, asked = found.best, report.title(found).replace("\n", ". ").removesuffix(".")
    first, *others = asked.split(". ")
    what = first.partition(": ")[2] or first
    saving, priced = found.saving, found.plans[found.ranked.index(best)]
    badges: list[pages.Badge] = [
        ("fits", "good") if best.fits else ("does not fit", "bad"),
        (f"bound by {best.rates.bound}", ""),
    ]
    if saving is not None:
        stated = ", as the scenario states" if found.scenario is not None else ""
        saved = f"{report.percent_text(saving)} of the power saved{stated}"
        badges.insert(0, (saved, "good" if saving > 0 else ""))
    return pages.Heading(
        f"Tables of {found.model} in tiers of memory",
        asked=(what, *others),
        answer=format_us(best.time_s * US),
        label=f"A query under {best.name}:",
        remark=interval_text(priced),
        badges=badges,
    )


def _over_cache(
    found: report.Placement, say: Callable[[str], None]
) -> Iterator[pages.Part]:
    """Draw what each size of the cache saves; of unknown watts, what a query takes."""
    plans = [*cached_plans(found, say)]
    if not plans:
        return
    savings = [found.saving_of(plan) for _, plan in plans]
    known = [100 * saving for saving in savings if saving is not None]
    is_saving = len(known) == len(plans)
    values = known if is_saving else [plan.time_s * US for _, plan in plans]
    what = "Power saved" if is_saving else "Time of a query"
    axis = (
        pages.Axis("power saved", "%")
        if is_saving
        else pages.Axis("time of a query", "us")
    )
    sizes = [size for size, _ in plans]
    names = ", ".join(tier.name for tier in found.best.setting.tiers)
    text = (
        "Each point is the best placement with a cache of that size, which tables in "
        f"DRAM have no room of; tiers: {names}."
    )
    if is_saving and found.scenario is not None:
        text += " Watts are those of the sheets, not the scenario's."
    series = [
        pages.Series(found.best.name, sizes, values, drawn="line", label="end"),
        pages.Series("placements", sizes, values),
    ]
    chart = pages.Chart(pages.Axis("size of the cache", "bytes"), axis, series, text)
    yield pages.Section(f"{what} over the size of the cache", [chart])


def cached_plans(
    found: report.Placement, say: Callable[[str], None]
) -> Iterator[tuple[float, PlacedPlan]]:
    """Yield sizes of the cache, and the best placement with each that can be."""
    for size in _sizes(found.best):
        site = found.best.site
        say(f"a cache of {format_bytes(size)}")
        question = attrs.evolve(found.question, cache_bytes=size)
        again = Site(
            question=question, model=site.model, target=site.target, base=site.base
        )
        try:
            task = again.task(question.tiers)
        except PerfcError:  # larger than its memory
            continue
        plan = search_tiers(task, (found.best.places,))
        if not plan.wrong:
            name = found.best.name
            yield (
                size,
                PlacedPlan(name=name, site=again, task=task, places=plan.places),
            )


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
