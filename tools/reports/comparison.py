"""Reports of one model on several targets, beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.passes.timing import TimeErrors, probability_shorter
from perfc.tools.reports.numbers import (
    format_bytes,
    format_percent,
    format_quantity,
    format_us,
)
from perfc.tools.reports.priced_plan import PricedPlan, plan_of, with_probabilities
from perfc.tools.reports.report import OUT_OF_MEMORY, Report
from perfc.tools.reports.texts import columns_text

_HEADING = (
    *("target", "time", "90 % interval", "device alone", "GPU busy", "bound by"),
    *("memory", "samples/s", "samples/J", "$/M samples", "faster than the first"),
)


def compared(reports: Sequence[Report]) -> tuple[PricedPlan, ...]:
    """Return the targets as plans, with how probable it is that each is the fastest.

    Args:
        reports: Of one model, one a target.

    """
    plans = [plan_of(report.target.name, report) for report in reports]
    return with_probabilities(plans, [_errors(report) for report in reports])


def _errors(report: Report) -> TimeErrors | None:
    return None if _is_too_large(report) else report.errors


def _is_too_large(report: Report) -> bool:
    return any(remark.code == OUT_OF_MEMORY for remark in report.diagnostics)


def comparison_text(reports: Sequence[Report]) -> str:
    """Return a table, a row a target, in the order that was asked for.

    Args:
        reports: Of one model, one a target.

    """
    return columns_text(comparison_rows(reports))


def comparison_rows(reports: Sequence[Report]) -> list[tuple[str, ...]]:
    """Return the cells of `comparison_text`, a heading first.

    Args:
        reports: Of one model, one a target.

    """
    return [_HEADING, *(_row(report, reports[0]) for report in reports)]


def _row(report: Report, first: Report) -> tuple[str, ...]:
    summary = report.summary
    low_us, high_us = report.interval_us
    alone_us, rate = summary["device_only_us"], summary["samples_per_s"]
    per_j, usd = summary["samples_per_j"], summary["usd_per_million_samples"]
    chance = probability_shorter(report.errors, first.errors)
    return (
        report.target.name,
        format_us(report.time_us),
        f"{format_us(low_us)} to {format_us(high_us)}",
        "-" if alone_us is None else format_us(alone_us),
        format_percent(summary["gpu_active_us"] / report.time_us),
        report.bound,
        format_bytes(report.memory_use.peak_bytes)
        + (", too much" if _is_too_large(report) else ""),
        "-" if rate is None else format_quantity(rate, "").strip(),
        "-" if per_j is None else format_quantity(per_j, "").strip(),
        "-" if usd is None else f"{usd:,.4g}",
        "-" if report is first else format_percent(chance),
    )
