"""A step with lists of sessions deduplicated, and without, as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfc.tools import pages
from perfc.tools.charts import interval_text, plan_bars
from perfc.tools.dedup.report import Deduplication, PricedStep, group_rows, step_rows
from perfc.tools.reports import format_us


def dedup_page(found: Deduplication) -> str:
    """Return the page; it loads nothing from anywhere."""
    name = found.steps[0].report.model.name
    steps = [
        plan_bars(found.plans, "Time of a step"),
        pages.quantity_table(step_rows(found), "Steps"),
    ]
    groups = pages.quantity_table(group_rows(found), "Groups of features", search=True)
    return pages.page(
        f"perfc dedup: {name}",
        [
            _heading(found),
            pages.Remarks(found.diagnostics),
            pages.Section("Steps", steps),
            pages.Section(
                "Lookups, exchanges, expansion",
                [pages.Bars([*_parts(found.steps)], "Parts of the steps")],
                note="Device time of the rank that has most of it.",
            ),
            pages.Section("Groups of features", [groups]),
        ],
    )


def _heading(found: Deduplication) -> pages.Heading:
    report, ranks = found.steps[0].report, found.request.ranks or 1
    by_name = {plan.name: plan for plan in found.plans}
    after, before = by_name["dedup"], by_name["without"]
    gain = f"{found.gain:.2f} times as fast"
    badge: pages.Badge = (gain, "bad")
    if found.gain > 1:
        badge = (gain, "" if found.gains_little else "good")
    return pages.Heading(
        f"Deduplicated lookups of {report.model.name} on {report.target.name}",
        asked=(
            f"{found.request.mode}, {report.model.batch or 1:,} samples a rank",
            f"{ranks:,} ranks" if ranks > 1 else "one GPU",
            f"sessions of {found.session:.4g} samples inside a batch",
        ),
        answer=format_us(after.time_us),
        label="Step with lookups deduplicated:",
        remark=interval_text(after),
        badges=[
            badge,
            (f"{format_us(before.time_us)} without", ""),
        ],
    )


def _parts(steps: Sequence[PricedStep]) -> Iterator[pages.Bar]:
    for step in steps:
        for name, amount_us in step.parts_us.items():
            if amount_us:
                what = name.removesuffix("_us").replace("_", " ")
                kind = "comm" if "all_to_all" in name else "kernel"
                label = f"{step.name}: {what}"
                yield pages.Bar(label, amount_us, format_us(amount_us), kind=kind)
