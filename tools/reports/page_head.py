"""The head of a report's page: the answer, its assumptions, and where time goes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from perfc.tools import pages
from perfc.tools.reports.numbers import (
    format_bytes,
    format_percent,
    format_us,
)

if TYPE_CHECKING:
    from perfc.tools.reports.report import Report

_MOST_BARS = 12
_SUMMED = (
    ("samples_per_s", "samples/s", "{:,.10g}"),
    ("samples_per_j", "samples/J", "{:,.10g}"),
)
_BOUNDS = {
    "host": "bound by the host",
    "compute": "bound by arithmetic",
    "memory": "bound by memory traffic",
    "network": "bound by communication",
}


def answer(report: Report) -> pages.Heading:
    """Return the time with its interval, what bounds it, and whether it fits."""
    low_us, high_us = report.interval_us
    settings = report.tables.title.removeprefix(report.model.name)
    own = report.target.name
    asked = [part for part in settings.split(" · ") if part and part != own]
    return pages.Heading(
        title=f"{report.model.name} on {report.target.name}",
        asked=asked,
        label=report.tables.headline[0][0],
        answer=format_us(report.time_us),
        remark=f"90 % interval {format_us(low_us)} to {format_us(high_us)}",
        badges=[(_BOUNDS[report.bound], ""), _fit(report)],
    )


def _fit(report: Report) -> pages.Badge:
    peak = report.memory_use.peak_bytes
    usable = report.target.device.memory.usable_bytes
    text = f"{format_bytes(peak)} of {format_bytes(usable)}"
    return (
        (f"fits: {text}", "good")
        if peak <= usable
        else (f"does not fit: {text}", "bad")
    )


def cards(report: Report) -> pages.Cards:
    """Return the other numbers of the answer; those that nobody knows are left out."""
    return pages.Cards([*_rates(report), *_headline(report)])


def _rates(report: Report) -> Iterator[pages.Card]:
    for key, label, form in _SUMMED:
        value: float | None = report.summary[key]
        if value is not None:
            yield pages.Card(label, form.format(float(f"{value:.3g}")))


def _headline(report: Report) -> Iterator[pages.Card]:
    for label, value, remark in report.tables.headline[1:]:
        if value:
            yield pages.Card(label, value, remark)


def basis(report: Report) -> pages.Text:
    """Say what kind of numbers the times are."""
    said = [
        f"{label} {text}" for label, value, text in report.tables.headline if not value
    ]
    text = "; ".join(said)
    return pages.Text(f"{text[:1].upper()}{text[1:]}.", dim=True)


def breakdown(report: Report) -> pages.Bars:
    """Return the parts of the critical path, as bars."""
    rows = report.tables.breakdown
    bars = [
        pages.Bar(label, us, format_us(us), share, report.tables.kinds[label])
        for label, us, share in rows[:_MOST_BARS]
    ]
    rest_us = math.fsum(us for _, us, _ in rows[_MOST_BARS:])
    if rest_us:
        share = format_percent(rest_us / report.time_us)
        label = f"{len(rows) - _MOST_BARS} more"
        bars.append(pages.Bar(label, rest_us, format_us(rest_us), share))
    return pages.Bars(bars, "Where the time goes along the critical path")


def report_head(report: Report) -> Sequence[pages.Part]:
    """Return the head of a report, as notebooks show it, and its page first."""
    return [
        answer(report),
        pages.Remarks(report.diagnostics),
        cards(report),
        basis(report),
        pages.Section(
            "Where the time goes",
            [breakdown(report)],
            note=f"Along the critical path. Bottleneck: {report.tables.bottleneck}",
        ),
    ]
