"""What pages show of ranked plans: their times, and time against memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfc.tools import pages
from perfc.tools.reports import PricedPlan, format_bytes, format_us

_SHOWN = 12
"""Plans with a bar: the first ones."""

_WIDE = 5
"""An axis is logarithmic where its largest number is so often the least."""


_NEAR = 4
"""A limit so often the largest memory is too far away to be drawn."""


def plan_bars(plans: Sequence[PricedPlan], name: str) -> pages.Bars:
    """Return a bar for each of the first plans, with its interval and chance."""
    shown = plans[:_SHOWN]
    known = any(plan.probability_best is not None for plan in shown)
    heading = ("plan", "", "time", "P(fastest)" if known else "")
    return pages.Bars([*map(_bar, shown)], name, heading)


def _bar(plan: PricedPlan) -> pages.Bar:
    low, high = plan.time_us_p05, plan.time_us_p95
    known = low is not None and high is not None
    return pages.Bar(
        label=plan.name,
        amount=plan.time_us,
        text=format_us(plan.time_us),
        note="" if plan.probability_best is None else plan.chance,
        kind="kernel",
        low=low if known and low is not None else math.nan,
        high=high if known and high is not None else math.nan,
    )


def time_and_memory(
    plans: Sequence[PricedPlan], limit_bytes: float | None = None
) -> pages.Chart | None:
    """Return a chart of time over memory; None of fewer than two plans that have both.

    Args:
        plans: The plans.
        limit_bytes: What a device has, drawn as a line; None: nothing is drawn.

    """
    shown = [
        (plan, plan.peak_memory_bytes)
        for plan in plans
        if plan.peak_memory_bytes and math.isfinite(plan.time_us)
    ]
    if len(shown) < 2:  # noqa: PLR2004 - one alone compares with nothing
        return None
    x = [size for _, size in shown]
    y = [plan.time_us for plan, _ in shown]
    notes = [
        f"{plan.name}: {format_us(plan.time_us)}, {format_bytes(size)}"
        for plan, size in shown
    ]
    series = [pages.Series("plans", x, y, notes=notes)]
    text = "Each point is a plan: lower is faster, further left needs less memory."
    if limit_bytes is not None and limit_bytes < _NEAR * max(x):
        ends = [limit_bytes, limit_bytes], [min(y), max(y)]
        series.append(
            pages.Series("what a device has", *ends, drawn="dashes", color=-1)
        )
        text += " What is right of the dashed line does not fit."
    return pages.Chart(
        pages.Axis("memory of the fullest device", "bytes", log=_is_wide(x)),
        pages.Axis("time of a step", "us", log=_is_wide(y)),
        series,
        text,
    )


def _is_wide(values: Sequence[float]) -> bool:
    return max(values) > _WIDE * min(values) > 0


def plan_heading(
    title: str, plan: PricedPlan, label: str, badges: Sequence[pages.Badge] = ()
) -> pages.Heading:
    """Return a heading of lines of a question, and the time of a plan as the answer."""
    first, *others = title.splitlines()
    time, interval = format_us(plan.time_us), plan.interval
    remark = f"90 % interval {interval}" if interval else ""
    return pages.Heading(first, others, time, label, remark, badges)
