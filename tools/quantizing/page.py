"""Plans of precision as a page, as Markdown, and as rows of a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from perfc.tools import pages
from perfc.tools.charts import interval_text, plan_bars, time_and_memory
from perfc.tools.quantizing.report import Quantization, frontier_table, plan_table
from perfc.tools.reports import format_change, format_us

Table = Sequence[Sequence[str]]


def quantized_page(found: Quantization) -> str:
    """Return the page; it loads nothing from anywhere."""
    usable = found.target.device.memory.usable_bytes
    chart = time_and_memory(found.plans, usable)
    parts: list[pages.Part] = [
        _heading(found),
        pages.Remarks(found.diagnostics),
        pages.Section(
            "Plans",
            [
                plan_bars(found.plans, "Time of a step under each plan"),
                pages.quantity_table(plan_table(found), "Plans"),
                *([] if chart is None else [chart]),
            ],
        ),
        *_frontier(found),
    ]
    if kept := found.best.kept:
        lines = [("op", "type", "reason"), *((k.name, k.dtype, k.reason) for k in kept)]
        listed = pages.quantity_table(lines, "Kept ops", search=True)
        parts.append(pages.Section("Kept as they are", [listed]))
    return pages.page(f"perfc quantize: {found.best.report.model.name}", parts)


def _heading(found: Quantization) -> pages.Heading:
    best, report, original = found.best, found.best.report, found.original.report
    batch = report.model.batch
    change = report.time_us / original.time_us - 1
    return pages.Heading(
        f"{report.model.name} in fewer bits on {found.target.name}",
        asked=(
            report.runtime,
            *(() if batch is None else (f"batch {batch:,}",)),
            f"{best.casts:,} casts",
        ),
        answer=format_us(report.time_us),
        label=f"Step of {best.name}:",
        remark=interval_text(found.plans[0]),
        badges=[
            (
                f"{format_change(change)} against the original",
                "good" if change < 0 else "bad",
            ),
            ("fits in memory", "good") if best.fits else ("does not fit", "bad"),
            (f"bound by {report.bound}", ""),
        ],
    )


def _frontier(found: Quantization) -> Iterator[pages.Part]:
    points = found.frontier
    if not points:
        return
    x, y = [one.loss for one in points], [one.time_us for one in points]
    notes = [
        f"loss {one.loss:g}: {format_us(one.time_us)}, {one.quantized} quantized"
        for one in points
    ]
    series = [
        pages.Series("fastest plan of each loss", x, y, drawn="steps"),
        pages.Series("plans", x, y, notes=notes),
    ]
    if found.budget is not None and found.loss is not None:
        ends = [found.budget, found.budget], [min(y), max(y)]
        series.append(pages.Series("budget", *ends, drawn="dashes", color=-1))
        mine = [found.loss], [found.best.report.time_us]
        series.append(pages.Series(found.best.name, *mine, color=1))
    text = "No plan of less loss is faster than the line."
    chart = pages.Chart(
        pages.Axis("loss"), pages.Axis("time of a step", "us"), series, text
    )
    table = pages.quantity_table(frontier_table(points), "Frontier")
    yield pages.Section("Time against loss", [chart, table])


def quantized_markdown(found: Quantization) -> str:
    """Return the tables in Markdown."""
    parts = [_markdown(plan_table(found))]
    if found.frontier:
        parts.append(_markdown(frontier_table(found.frontier)))
    parts += [f"{one.level.value}: {one.message}" for one in found.diagnostics]
    return "\n\n".join(parts) + "\n"


def _markdown(rows: Table) -> str:
    heading, *rest = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([heading, "|" + "---|" * len(rows[0]), *rest])


def quantized_csv(found: Quantization) -> str:
    """Return a row for each plan."""
    text = io.StringIO()
    rows = found.rows
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
