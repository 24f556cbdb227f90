"""Compared strategies as a page: times, memory, and what the step of the best is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfc.ir.support import US
from perfc.planning.strategies import StrategyPrice
from perfc.tools import charts, pages, reports
from perfc.tools.strategies import report


def strategies_page(found: report.Comparison) -> str:
    """Return the page; it loads nothing from anywhere."""
    parts: list[pages.Part] = [_heading(found), pages.Remarks(found.diagnostics)]
    fitting, others = report.strategy_tables(found)
    limit = reports.format_bytes(found.pricer.limit_bytes)
    if fitting:
        fit = zip(found.plans, found.findings.ranked, strict=True)
        plans = [plan for plan, price in fit if not price.missing_bytes]
        bars = charts.plan_bars(plans, "Time of a step with each strategy")
        table = pages.quantity_table(fitting, "Strategies", search=True)
        note = found.within_text
        parts.append(pages.Section("Strategies", [bars, table], note=note))
        parts += _best(found)
    chart = charts.time_and_memory(found.plans, found.pricer.limit_bytes)
    if chart is not None:
        parts.append(pages.Section("Time and memory", [chart]))
    if others:
        table = pages.quantity_table(others, "Strategies that do not fit", search=True)
        parts.append(pages.Section(f"Too much for {limit}", [table]))
    left = _lines(report.not_priced(found, found.findings.left))
    refused = _lines(report.cannot_be(found.findings.refused))
    if left:
        parts.append(pages.Section("Not priced", left, folded=True))
    if refused:
        parts.append(pages.Section("Cannot be", refused, folded=True))
    return pages.page(f"perfc parallel: {found.pricer.models.program.name}", parts)


def _heading(found: report.Comparison) -> pages.Heading:
    asked, name = found.question, found.pricer.models.program.name
    request, best = asked.request, found.findings.best
    sizes = " or ".join(f"{count:,}" for count in asked.ranks)
    samples = () if request.batch is None else (f"{request.batch:,} samples",)
    facts = (
        *("training step" if request.mode == "training" else "inference", *samples),
        *(str(request.dtype), str(request.runtime), f"by {asked.objective.name}"),
    )
    title = f"{name} on {sizes} GPUs of {asked.target.name}"
    cut: list[pages.Badge] = []
    if found.findings.interrupted:
        cut.append(("interrupted: not all is priced", "bad"))
    if best is None:
        text = (
            f"nothing fits in {reports.format_bytes(found.pricer.limit_bytes)} of a GPU"
        )
        return pages.Heading(title, facts, badges=[(text, "bad"), *cut])
    priced = found.plans[found.findings.ranked.index(best)]
    return pages.Heading(
        title,
        asked=facts,
        answer=reports.format_us(best.step_s * US),
        label=f"Step with {best.strategy}:",
        remark=charts.interval_text(priced),
        badges=[
            (
                f"{reports.format_quantity(best.samples_per_s, '').strip()} samples/s",
                "",
            ),
            (f"bound by {best.bound}", ""),
            (f"fastest with {priced.chance} probability", ""),
            *cut,
        ],
    )


def _best(found: report.Comparison) -> Iterator[pages.Part]:
    best = found.findings.best
    if best is None:
        return
    bars = pages.Bars([*_parts(best)], "Parts of the step")
    stages: list[pages.Part] = []
    if best.strategy.stages > 1:
        stages.append(charts.stage_timeline(found.pricer.report(best.strategy)))
    command = pages.Preformatted(found.command(best.strategy))
    note = "Shares of the critical path, by what limits it; below the command that "
    yield pages.Section(
        f"The step with {best.strategy}",
        [bars, *stages, command],
        note=f"{note}predicts it in full.",
    )


def _parts(best: StrategyPrice) -> Iterator[pages.Bar]:
    """Yield the parts of the step: its bubble, and what limits the rest."""
    left_s = best.step_s - best.bubble_s
    parts_s = {name: share * left_s for name, share in best.shares.items()}
    kinds = {"host": "host", "memory": "memory", "network": "comm", "compute": "kernel"}
    for name, part_s in {**parts_s, "bubble": best.bubble_s}.items():
        if part_s:
            share = reports.format_percent(part_s / best.step_s)
            kind = kinds.get(name, "idle")
            yield pages.Bar(name, part_s, reports.format_us(part_s * US), share, kind)
    exposed_s = best.exposed_s
    if exposed_s:
        share = reports.format_percent(exposed_s / best.step_s)
        text = reports.format_us(exposed_s * US)
        yield pages.Bar("of it exposed communication", exposed_s, text, share, "comm")


def _lines(lines: Iterator[str]) -> Sequence[pages.Part]:
    return [*map(pages.Text, lines)]
