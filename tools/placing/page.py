"""A placement as a page: plans, tiers, tables, and what a cache of each size saves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

import attrs

from perfc.costmodels.sheets import DRAM, find_tier
from perfc.ir import PerfcError
from perfc.planning.plans import size_text
from perfc.planning.searches import search_tiers
from perfc.tools.placing.placed_plan import PlacedPlan
from perfc.tools.placing.report import (
    Lines,
    Placement,
    notes,
    plan_lines,
    scenario_parts,
    table_lines,
    tier_lines,
    title,
)
from perfc.tools.placing.site import Site
from perfc.tools.reports import PAGE_SCRIPT, PAGE_STYLE
from perfc.tools.sweeping import Line, Point, Ruler, scatter

_PLOT_STYLE = """
.plot { max-width: 46em; } .grid { stroke: var(--line); stroke-width: .5; }
"""
_SIZES = 8
"""Sizes of the cache that are drawn, evenly up to its memory."""

_ALL = 10**9
US = 1e6


def place_page(found: Placement, say: Callable[[str], None] = lambda _: None) -> str:
    """Return the page; it loads nothing from anywhere.

    Args:
        found: The placement.
        say: Told what is being done: each size of the cache is a search.

    """
    heading = escape(f"perfc place: {found.model}")
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        f"<title>{heading}</title><style>{PAGE_STYLE}{_PLOT_STYLE}</style></head>",
        f"<body><h1>{heading}</h1>",
        *(f"<p>{escape(line)}</p>" for line in title(found).splitlines()),
        *_table(plan_lines(found)),
        *(f"<p>{escape(line)}</p>" for line in notes(found)),
        *_over_cache(found, say),
        f"<h2>Tiers under {escape(found.best.name)}</h2>",
        *_table(tier_lines(found.best)),
        f"<h2>Tables under {escape(found.best.name)}</h2>",
        *_table(table_lines(found.best, _ALL)),
    ]
    if found.scenario is not None:
        parts += [
            f"<pre>{escape(part)}</pre>" for part in scenario_parts(found.scenario)
        ]
    told = (f"{one.level.value}: {one.message}" for one in found.diagnostics)
    parts += ["<h2>Remarks</h2><ul>", *(f"<li>{escape(t)}</li>" for t in told)]
    return "\n".join([*parts, f"</ul><script>{PAGE_SCRIPT}</script></body></html>\n"])


def _table(lines: Lines) -> Iterator[str]:
    heading, *rows = lines
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in heading)
    yield f'<table class="nodes"><thead><tr>{cells}</tr></thead><tbody>'
    for row in rows:
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
    yield "</tbody></table>"


def _over_cache(found: Placement, say: Callable[[str], None]) -> Iterator[str]:
    """Draw what each size of the cache saves; of unknown watts, what a query takes."""
    plans = [*cached_plans(found, say)]
    if not plans:
        return
    savings = [found.saving_of(plan) for _, plan in plans]
    known = [saving for saving in savings if saving is not None]
    is_saving = len(known) == len(plans)
    what = "power saved, %" if is_saving else "time of a query, us"
    values = [
        100 * (found.saving_of(plan) or 0.0) if is_saving else plan.time_s * US
        for _, plan in plans
    ]
    sizes = [size / 1e9 for size, _ in plans]
    names = [tier.name for tier in found.best.setting.tiers]
    yield f"<h2>{what.partition(',')[0].capitalize()} over the size of the cache</h2>"
    yield '<p class="note">The best placement of each size, which tables in DRAM have '
    yield f"no room of; tiers: {escape(', '.join(names))}.</p>"
    across = Ruler("cache, GB", sizes, "{:.3g}".format)
    up = Ruler(what, values, "{:.4g}".format)
    points = [
        Point(x, y, 0, f"{x:.3g} GB: {y:.4g}")
        for x, y in zip(sizes, values, strict=True)
    ]
    line = Line([*zip(sizes, values, strict=True)], 0)
    yield from scatter(across, up, points, [line], [found.best.name])


def cached_plans(
    found: Placement, say: Callable[[str], None]
) -> Iterator[tuple[float, PlacedPlan]]:
    """Yield sizes of the cache, and the best placement with each that can be."""
    for size in _sizes(found.best):
        site = found.best.site
        say(f"a cache of {size_text(size)}")
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
