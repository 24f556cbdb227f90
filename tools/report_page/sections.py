"""What the page of reports shows, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import attrs

from perfc.ir import Diagnostic
from perfc.ir.support import Json
from perfc.tools import pages
from perfc.tools.report_page.drawn import memory_chart, roofline_chart
from perfc.tools.reports import (
    Comparison,
    Report,
    Slope,
    answer,
    basis,
    breakdown,
    cards,
    format_bytes,
    format_quantity,
    format_us,
    report_head,
)

Level: TypeAlias = Literal[2, 3]

_MOST_NODES = 1000
_LEAST_NODES = 100
_COLUMNS = (
    *("node", "op", "module", "stream", "start", "time", "slack", "FLOP", "bytes"),
    *("priced by", "number is", "critical"),
)
_SLOPES = {
    "target": "Fields of the target",
    "host": "Costs of the host",
    "kernel": "Kernels",
    "op": "Ops",
}


def reports_page(reports: Sequence[Report], timelines: Sequence[pages.Timeline]) -> str:
    """Return the page of reports.

    Args:
        reports: One for each model and target.
        timelines: When what runs where, for each.

    """
    first, *others = reports
    pairs = zip(reports, timelines, strict=True)
    if not others:
        sections = [*report_head(first), *_sections(first, timelines[0], 2)]
        title = f"perfc: {first.model.name} on {first.target.name}"
        return pages.page(title, sections)
    compared = Comparison(reports)
    names = [plan.name for plan in compared.plans]
    return pages.page(
        f"perfc: {compared.title}",
        [
            pages.Heading(compared.title),
            *_all_remarks(names, reports),
            pages.Section("Comparison", [*_comparison(names, compared)]),
            *(
                pages.Section(
                    f"{name}: {format_us(report.time_us)}",
                    [*_head(report), *_sections(report, timeline, 3, len(reports))],
                    folded=report is not first,
                )
                for name, (report, timeline) in zip(names, pairs, strict=True)
            ),
        ],
    )


def _all_remarks(
    labels: Sequence[str], reports: Sequence[Report]
) -> Iterator[pages.Part]:
    """Yield the remarks on any report, once each, with whose they are."""
    found: dict[Diagnostic, list[str]] = {}
    for label, report in zip(labels, reports, strict=True):
        for one in report.diagnostics:
            found.setdefault(one, []).append(label)
    yield pages.Remarks(
        [
            one if len(names) == len(reports) else _told_of(one, names)
            for one, names in found.items()
        ]
    )


def _told_of(one: Diagnostic, names: Sequence[str]) -> Diagnostic:
    targets = ", ".join(names)
    places = [one.where] if one.where not in {"", targets} else []
    return attrs.evolve(one, where="; ".join([*places, targets]))


def _comparison(labels: Sequence[str], compared: Comparison) -> Iterator[pages.Part]:
    """Yield the times as bars, with their intervals, and the table."""
    bars = [
        pages.Bar(
            label,
            report.time_us,
            format_us(report.time_us),
            kind="kernel",
            low=report.interval_us[0],
            high=report.interval_us[1],
        )
        for label, report in zip(labels, compared.reports, strict=True)
    ]
    yield pages.Bars(bars, "Time of one iteration, with its 90 % interval")
    yield pages.Text("Time of one iteration; the line is its 90 % interval.", dim=True)
    yield pages.quantity_table(compared.rows, "Comparison")
    yield from (pages.Text(note, dim=True) for note in compared.notes)


def _head(report: Report) -> Iterator[pages.Part]:
    """Yield the head of one of several: its remarks stand at the top of the page."""
    yield attrs.evolve(answer(report), title="")
    yield cards(report)
    yield basis(report)
    note = f"Along the critical path. Bottleneck: {report.tables.bottleneck}"
    yield pages.Section("Where the time goes", [breakdown(report)], note, 3)


def _sections(
    report: Report, timeline: pages.Timeline, level: Level, of: int = 1
) -> Iterator[pages.Part]:
    """Yield the sections below the head, of one of so many reports on the page."""
    tables = report.tables
    yield pages.Section("Timeline", [timeline], level=level)
    if tables.to_fix:
        heading, fixes = tables.to_fix[0], tables.to_fix[1:]
        table = pages.Table(heading, fixes, "What to fix next", (3, 4, 5))
        yield pages.Section("What to fix next", [table], level=level)
    yield from _slopes(report, level)
    roofline = roofline_chart(report, of)
    if roofline is not None:
        yield pages.Section("Roofline", [roofline], level=level)
    yield pages.Section("Device memory", [*_memory(report)], level=level)
    for title, rows, first in (
        ("Phases of the step", tables.phases, 1),
        ("Ranks", tables.ranks, 2),
        ("Input pipeline", tables.loading, 2),
    ):
        if rows:
            heading, own = rows[0], rows[1:]
            table = pages.Table(heading, own, title, range(first, len(heading)))
            note = tables.loading_at if rows is tables.loading else ""
            yield pages.Section(title, [table], note, level)
    yield pages.Section(
        "Ops", [_nodes(report, max(_LEAST_NODES, _MOST_NODES // of))], level=level
    )


def _memory(report: Report) -> Iterator[pages.Part]:
    chart = memory_chart(report)
    if chart is not None:
        yield chart
    if report.tables.memory:
        yield pages.Text(f"At its peak: {report.tables.memory_at}")
        yield pages.Bars(
            [
                pages.Bar(label, size, format_bytes(size), share, "memory")
                for label, size, share in report.tables.memory
            ],
            "Device memory at its peak",
        )


def _slopes(report: Report, level: Level) -> Iterator[pages.Part]:
    """Yield a bar for each number that decides the time, if that was asked for."""
    found = report.sensitivity
    if found is None or not found.shown:
        return
    parts: list[pages.Part] = []
    for kind, title in _SLOPES.items():
        own = [slope for slope in found.shown if slope.kind == kind]
        if own:
            heading = ("", "", "if faster", "if slower")
            bars = pages.Bars([*map(_slope, own)], title, heading)
            parts.append(pages.Section(title, [bars], level=3))
    yield pages.Section(found.title, parts, level=level)


def _slope(slope: Slope) -> pages.Bar:
    remark = slope.remark.partition(":")[0]
    name = f"{slope.name} ({remark})" if remark else slope.name
    return pages.Bar(
        name, slope.size, f"{slope.faster:+.3f}", f"{slope.slower:+.3f}", "kernel"
    )


def _nodes(report: Report, most: int) -> pages.Table:
    nodes = sorted(report.nodes, key=lambda node: -float(node["duration_us"]))
    rows = [*map(_node, nodes[:most])]
    return pages.Table(
        _COLUMNS, rows, "Ops", search=True, total=len(nodes), order="longest"
    )


def _node(node: Json) -> list[str | pages.Cell]:
    return [
        *(node["id"], node["op"], node["module"], node["stream"]),
        *(
            pages.Cell(format_us(node[key]), node[key])
            for key in ("start_us", "duration_us", "slack_us")
        ),
        *(pages.Cell(_written(node[key]), node[key]) for key in ("flops", "bytes")),
        node["cost_model"],
        node["provenance"],
        "yes" if node["on_critical_path"] else "",
    ]


def _written(amount: float) -> str:
    return format_quantity(amount, "").strip() if amount else "0"
