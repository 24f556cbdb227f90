"""Reports of models on targets, beside each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import attrs

from perfc.passes.timing import TimeErrors, probability_shorter
from perfc.tools.given import check_known
from perfc.tools.reports.numbers import (
    format_bytes,
    format_percent,
    format_quantity,
    format_us,
)
from perfc.tools.reports.priced_plan import PricedPlan, plan_of, with_probabilities
from perfc.tools.reports.report import OUT_OF_MEMORY, Report
from perfc.tools.reports.texts import columns_text

Json: TypeAlias = dict[str, Any]

_LINE = 96

_BEST_HIGH = frozenset(
    {"fits", "samples_per_s", "samples_per_j", "busy_share", "probability_faster"}
)
"""Numbers of which more is better."""


@attrs.frozen
class _Column:
    """A column as people read it.

    Attributes:
        heading: Above it.
        side: Where its cells stand, `l` or `r`.
        cell: The text of an entry of `comparison_entries`.
        shown: Whether entries need it; None for always.

    """

    heading: str
    side: str
    cell: Callable[[Json], str]
    shown: Callable[[Sequence[Json]], bool] | None = None


def _or_dash(key: str, written: Callable[[Any], str]) -> Callable[[Json], str]:
    return lambda entry: "-" if entry[key] is None else written(entry[key])


def _interval(entry: Json) -> str:
    return f"{format_us(entry['time_us_p05'])} to {format_us(entry['time_us_p95'])}"


def _memory(entry: Json) -> str:
    return format_bytes(entry["peak_memory_bytes"]) + (
        "" if entry["fits"] else ", too much"
    )


def _rate(amount: float) -> str:
    return format_quantity(amount, "").strip()


def _has_several_models(entries: Sequence[Json]) -> bool:
    return len({entry["model"] for entry in entries}) > 1


def _has_carbon(entries: Sequence[Json]) -> bool:
    return any(entry["g_per_kwh"] is not None for entry in entries)


_COLUMNS = (
    _Column("model", "l", lambda entry: str(entry["model"]), _has_several_models),
    _Column("target", "l", lambda entry: str(entry["target"])),
    _Column("time", "r", lambda entry: format_us(entry["time_us"])),
    _Column("90 % interval", "l", _interval),
    _Column("device alone", "r", _or_dash("device_only_us", format_us)),
    _Column("GPU busy", "r", lambda entry: format_percent(entry["busy_share"])),
    _Column("bound by", "l", lambda entry: str(entry["bound"])),
    _Column("memory", "r", _memory),
    _Column("samples/s", "r", _or_dash("samples_per_s", _rate)),
    _Column("samples/J", "r", _or_dash("samples_per_j", _rate)),
    _Column(
        "$/M samples", "r", _or_dash("usd_per_million_samples", lambda n: f"{n:,.4g}")
    ),
    _Column(
        "CO2e/M samples",
        "r",
        _or_dash("gco2e_per_million_samples", lambda n: f"{n:,.4g} g"),
        _has_carbon,
    ),
    _Column(
        "faster than the first", "r", _or_dash("probability_faster", format_percent)
    ),
)


def compared(reports: Sequence[Report]) -> tuple[PricedPlan, ...]:
    """Return the reports as plans, with how probable it is that each is the fastest.

    Args:
        reports: Of models on targets.

    """
    several = _has_several_models(_entries(reports))
    plans = [plan_of(_name(report, several=several), report) for report in reports]
    return with_probabilities(plans, [_errors(report) for report in reports])


def _name(report: Report, *, several: bool) -> str:
    target = report.target.name
    return f"{_model(report)} on {target}" if several else target


def _errors(report: Report) -> TimeErrors | None:
    return None if _is_too_large(report) else report.errors


def _is_too_large(report: Report) -> bool:
    return any(remark.code == OUT_OF_MEMORY for remark in report.diagnostics)


def comparison_entries(reports: Sequence[Report]) -> list[Json]:
    """Return a row a report, numbers by keys that carry their unit; null is unknown.

    Args:
        reports: Of models on targets. `probability_faster` is that of being faster than
            the first of them.

    """
    return [{key: one[key] for key in COMPARISON_COLUMNS} for one in _entries(reports)]


def _entries(reports: Sequence[Report]) -> list[Json]:
    return [_entry(report, reports[0]) for report in reports]


def _model(report: Report) -> str:
    return report.called or report.model.name


_OF_SUMMARY = (
    *("time_us", "time_us_p05", "time_us_p95", "device_only_us", "bound"),
    *("peak_memory_bytes", "samples_per_s", "samples_per_j"),
    *("usd_per_million_samples", "gco2e_per_million_samples"),
)


def _entry(report: Report, first: Report) -> Json:
    summary = report.summary
    chance = probability_shorter(report.errors, first.errors)
    return {
        "model": _model(report),
        "target": report.target.name,
        **{key: summary[key] for key in _OF_SUMMARY},
        "busy_share": summary["gpu_active_us"] / report.time_us,
        "fits": not _is_too_large(report),
        "probability_faster": None if report is first else chance,
        "g_per_kwh": report.target.g_per_kwh,
    }


COMPARISON_COLUMNS = (
    *("target", "model", "time_us", "time_us_p05", "time_us_p95", "device_only_us"),
    *("busy_share", "bound", "peak_memory_bytes", "fits", "samples_per_s"),
    *("samples_per_j", "usd_per_million_samples", "gco2e_per_million_samples"),
    "probability_faster",
)
"""Keys of `comparison_entries`, in the order of a file's columns."""


def sort_column(text: str) -> tuple[str, bool]:
    """Read what `--sort` says: a key of a comparison, after `-` for the worst first.

    Returns:
        The key, and whether its largest number comes first.

    Raises:
        UsageError: it is no such key.

    """
    key = text.removeprefix("-")
    check_known("--sort", key, COMPARISON_COLUMNS)
    return key, (key in _BEST_HIGH) is not text.startswith("-")


def sorted_reports(reports: Sequence[Report], column: tuple[str, bool]) -> list[Report]:
    """Return reports in the order of a column; those without a number are the last.

    Args:
        reports: Of models on targets; those that are equal stay in their order.
        column: What `sort_column` returns.

    """
    key, largest_first = column
    pairs = list(zip(comparison_entries(reports), reports, strict=True))
    known = [pair for pair in pairs if pair[0][key] is not None]
    unknown = [report for entry, report in pairs if entry[key] is None]
    known.sort(key=lambda pair: pair[0][key], reverse=largest_first)
    return [*(report for _, report in known), *unknown]


def comparison_text(reports: Sequence[Report]) -> str:
    """Return a table, a row a report, and below where prices come from.

    Args:
        reports: Of models on targets.

    """
    notes = comparison_notes(reports)
    return columns_text(comparison_rows(reports)) + "".join(f"\n{n}" for n in notes)


def comparison_rows(reports: Sequence[Report]) -> list[tuple[str, ...]]:
    """Return the cells of `comparison_text`, a heading first.

    Args:
        reports: Of models on targets.

    """
    entries = _entries(reports)
    columns = _shown(entries)
    rows = [tuple(column.cell(entry) for column in columns) for entry in entries]
    return [tuple(column.heading for column in columns), *rows]


def comparison_sides(reports: Sequence[Report]) -> str:
    """Return where the cells of each column stand: `l`eft or `r`ight.

    Args:
        reports: Of models on targets.

    """
    return "".join(column.side for column in _shown(_entries(reports)))


def _shown(entries: Sequence[Json]) -> list[_Column]:
    return [one for one in _COLUMNS if one.shown is None or one.shown(entries)]


def comparison_notes(reports: Sequence[Report]) -> list[str]:
    """Return where each price comes from, and what carbon is of, a line for each.

    Long citations end before the place of what they cite: the sheet has the rest.

    Args:
        reports: Of models on targets.

    """
    return list(dict.fromkeys(_notes(reports)))


def _shortened(citation: str) -> str:
    return citation if len(citation) <= _LINE else citation.partition(" (")[0]


def _notes(reports: Sequence[Report]) -> Iterator[str]:
    for report in reports:
        target = report.header["target"]
        usd, source = target["usd_per_hour"], target["price_source"]
        if usd is not None:
            said = "as given" if source == "--set" else _shortened(str(source))
            yield f"price of {target['name']}: {usd:,.4g} USD an hour a GPU; {said}"
    for report in reports:
        if report.target.g_per_kwh is not None:
            grams = f"{report.target.g_per_kwh:,.4g} g/kWh"
            yield f"CO2e at {grams}, of the energy of GPUs, or of nodes by their sheets"
