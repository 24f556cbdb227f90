"""Reports of models on targets, beside each other."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from perfc.costmodels import COLLECTIVES, Target
from perfc.costmodels.gemm import times_computed
from perfc.costmodels.kernels import FLOATS, moved_s
from perfc.ir import Diagnostic, Kernel, LaunchOp
from perfc.ir.support import US, Json, Level
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

_LINE = 96

_BEYOND = 2
"""Times by which a ratio may exceed that of the sheets: whole waves of blocks, and what
of a peak a board reaches, make up to so much."""

_PARTS = 20
"""A kernel counts whose launches are one part in so many of a board's device time."""

_BEST_HIGH = frozenset({"fits", "samples_per_s", "samples_per_j", "busy_share"})
"""Numbers of which more is better."""


@attrs.frozen
class Column:
    """A column as people read it.

    Attributes:
        heading: Above it.
        side: Where its cells stand, `l` or `r`.
        cell: The text of an entry.

    """

    heading: str
    side: str
    cell: Callable[[Json], str]


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


_MODEL, _CARBON = "model", "CO2e/M samples"
"""Headings of columns that not every comparison has."""

_COLUMNS = (
    Column(_MODEL, "l", lambda entry: str(entry["model"])),
    Column("target", "l", lambda entry: str(entry["target"])),
    Column("time", "r", lambda entry: format_us(entry["time_us"])),
    Column("90 % interval", "l", _interval),
    Column("device alone", "r", _or_dash("device_only_us", format_us)),
    Column("GPU busy", "r", lambda entry: format_percent(entry["busy_share"])),
    Column("bound by", "l", lambda entry: str(entry["bound"])),
    Column("memory", "r", _memory),
    Column("samples/s", "r", _or_dash("samples_per_s", _rate)),
    Column("samples/J", "r", _or_dash("samples_per_j", _rate)),
    Column(
        "$/M samples", "r", _or_dash("usd_per_million_samples", lambda n: f"{n:,.4g}")
    ),
    Column(
        _CARBON,
        "r",
        _or_dash("gco2e_per_million_samples", lambda n: f"{n:,.4g} g"),
    ),
    Column("P(faster)", "r", _or_dash("probability_faster", format_percent)),
)


_OF_SUMMARY = (
    *("time_us", "time_us_p05", "time_us_p95", "device_only_us", "bound"),
    *("peak_memory_bytes", "samples_per_s", "samples_per_j"),
    *("usd_per_million_samples", "gco2e_per_million_samples"),
)

KEYS = (
    *("target", "model", "time_us", "time_us_p05", "time_us_p95", "device_only_us"),
    *("busy_share", "bound", "peak_memory_bytes", "fits", "samples_per_s"),
    *("samples_per_j", "usd_per_million_samples", "gco2e_per_million_samples"),
    "probability_faster",
)
"""Keys of entries, in the order of a file's columns."""

SORTED = KEYS[:-1]
"""Keys that rows are sorted by: the last is of whatever row is the first."""


@attrs.frozen(eq=False)
class Comparison:
    """Models on targets, beside each other.

    Attributes:
        reports: One for each pair, in the order in which they are shown.

    """

    reports: Sequence[Report]

    @functools.cached_property
    def entries(self) -> list[Json]:
        """A row for each report, by keys that carry their unit; null is unknown.

        `probability_faster` is that of taking less time than the first of them.
        """
        return [_entry(report, self.reports[0]) for report in self.reports]

    @property
    def title(self) -> str:
        """What is compared, in a few words."""
        models, targets = (
            list(dict.fromkeys(str(entry[key]) for entry in self.entries))
            for key in ("model", "target")
        )
        what = models[0] if len(models) == 1 else f"{len(models)} models"
        where = targets[0] if len(targets) == 1 else f"{len(targets)} targets"
        return f"{what} on {where}"

    @property
    def plans(self) -> tuple[PricedPlan, ...]:
        """The reports as plans, with how probable it is that each is the fastest."""
        several = _has_several_models(self.entries)
        named = [(_name(report, several=several), report) for report in self.reports]
        plans = [plan_of(name, report) for name, report in named]
        return with_probabilities(plans, [_errors(report) for report in self.reports])

    def sorted(self, key: str, *, largest_first: bool) -> Comparison:
        """Return it in the order of a key; those without a number are the last.

        Args:
            key: One of `SORTED`; those that are equal stay in their order.
            largest_first: Whether the largest number comes first.

        """
        pairs = list(zip(self.entries, self.reports, strict=True))
        known = [pair for pair in pairs if pair[0][key] is not None]
        unknown = [report for entry, report in pairs if entry[key] is None]
        known.sort(key=lambda pair: pair[0][key], reverse=largest_first)
        return Comparison([*(report for _, report in known), *unknown])

    @property
    def columns(self) -> list[Column]:
        """The columns that its entries need."""
        has_carbon = any(report.target.g_per_kwh is not None for report in self.reports)
        hidden = {
            _MODEL: not _has_several_models(self.entries),
            _CARBON: not has_carbon,
        }
        return [one for one in _COLUMNS if not hidden.get(one.heading)]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells of the table, a heading first."""
        columns = self.columns
        rows = [tuple(one.cell(entry) for one in columns) for entry in self.entries]
        return [tuple(one.heading for one in columns), *rows]

    @property
    def notes(self) -> list[str]:
        """Sources of prices, what carbon is of, and its diagnostics, a line for each.

        Long citations end before the place of what they cite: the sheet has the rest.
        """
        remarks = [
            f"{one.level.value.capitalize()}: {one.message} [{one.code}]"
            for one in self.diagnostics
        ]
        return [*dict.fromkeys(_notes(self.reports)), *remarks]

    @functools.cached_property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What there is to say of reports beside each other."""
        return tuple(beyond_sheets(self.reports))

    def __str__(self) -> str:
        return "\n".join([columns_text(self.rows), *self.notes])


def sort_key(text: str) -> tuple[str, bool]:
    """Read the value of `--sort`: one of `SORTED`, after `-` for the worst first.

    Returns:
        The key, and whether its largest number comes first.

    """
    key = text.removeprefix("-")
    check_known("--sort", key, SORTED)
    return key, (key in _BEST_HIGH) is not text.startswith("-")


def _has_several_models(entries: Sequence[Json]) -> bool:
    return len({entry["model"] for entry in entries}) > 1


def _model(report: Report) -> str:
    return report.called or report.model.name


def _name(report: Report, *, several: bool) -> str:
    target = report.target.name
    return f"{_model(report)} on {target}" if several else target


def _errors(report: Report) -> TimeErrors | None:
    return None if _is_too_large(report) else report.errors


def _is_too_large(report: Report) -> bool:
    return any(remark.code == OUT_OF_MEMORY for remark in report.diagnostics)


def _entry(report: Report, first: Report) -> Json:
    summary = report.summary
    chance = probability_shorter(report.errors, first.errors)
    entry = {
        "model": _model(report),
        "target": report.target.name,
        **{key: summary[key] for key in _OF_SUMMARY},
        "busy_share": summary["gpu_active_us"] / report.time_us,
        "fits": not _is_too_large(report),
        "probability_faster": None if report is first else chance,
    }
    return {key: entry[key] for key in KEYS}


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


@attrs.frozen
class _Launched:
    """A kernel as one report has it.

    Attributes:
        seconds: Of one launch.
        count: Number of launches.
        op: The first op that launches it.

    """

    seconds: float
    count: int
    op: LaunchOp


def beyond_sheets(reports: Sequence[Report]) -> Iterator[Diagnostic]:
    """Yield kernels whose times differ by more than twice what sheets of GPUs allow.

    Each report is compared with the first one of the same model.
    """
    firsts: dict[str, Report] = {}
    for report in reports:
        if report.target.device.synchronous:  # a CPU, whose kernels are others
            continue
        first = firsts.setdefault(report.called or report.model.name, report)
        if first is not report:
            yield from _beyond(first, report)
            yield from _beyond(report, first)


def _beyond(slow: Report, fast: Report) -> Iterator[Diagnostic]:
    launched, others = _launched(slow), _launched(fast)
    total_s = math.fsum(one.seconds * one.count for one in launched.values())
    for kernel, mine in launched.items():
        other = others.get(kernel)
        if other is None or mine.seconds * mine.count * _PARTS < total_s:
            continue
        allowed = _allowed(kernel, slow.target, fast.target)
        if mine.seconds > _BEYOND * allowed * other.seconds:
            times = (slow.target, mine), (fast.target, other)
            yield _remark(kernel, times, allowed)


def _launched(report: Report) -> Mapping[Kernel, _Launched]:
    """Return the kernels of the rank class that decides the time, but collectives."""
    results = report.results
    graph, costs = results.graphs[results.critical], results.costs[results.critical]
    counts, found = Counter(graph.kernel), dict[Kernel, _Launched]()
    for task, number in enumerate(graph.kernel):
        kernel = graph.kernels[number]
        if number >= 0 and kernel.op not in COLLECTIVES and kernel not in found:
            op = graph.ops[graph.op[task]]
            found[kernel] = _Launched(float(costs.seconds[number]), counts[number], op)
    return found


def _allowed(kernel: Kernel, slow: Target, fast: Target) -> float:
    """Return how many times as long sheets let a kernel take on one board, at most.

    The largest ratio of what can bound it: the peak of its math mode, bytes out of the
    faster board's caches and the slower one's memory, the clock, and any launch.
    """
    one, other = slow.device, fast.device
    ratios = [
        other.sm_clock_hz / one.sm_clock_hz,
        one.kernel_floor_s / other.kernel_floor_s,
    ]
    if kernel.work.flops:
        ratios.append(other.peak(kernel.math) / one.peak(kernel.math))
    moved = float(kernel.work.bytes)
    if moved:
        ratios.append(moved / one.memory.bytes_per_s / moved_s(moved, fast, FLOATS))
    return max(ratios)


def _remark(
    kernel: Kernel, times: Sequence[tuple[Target, _Launched]], allowed: float
) -> Diagnostic:
    (slow, mine), (fast, other) = times
    computed = [times_computed(kernel, each) for each, _ in times]
    why = "what the models of each know of such kernels is not the same"
    if computed[0] is not None and computed[1] is not None:
        why = (
            f"the tiles that they are priced by compute each result {computed[0]:.1f} "
            f"and {computed[1]:.1f} times, and another version of a library may choose "
            "others"
        )
    where = mine.op.node or mine.op.name
    times_us = [format_us(one.seconds * US) for _, one in times]
    message = (
        f"{mine.op.name} at {where} takes {times_us[0]} on {slow.name}, {times_us[1]} "
        f"on {fast.name}: {mine.seconds / other.seconds:.1f} times as long, where "
        f"their sheets allow {allowed:.1f}; {why}"
    )
    return Diagnostic(Level.WARNING, "beyond-sheets", message, where)
