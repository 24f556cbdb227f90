"""Layers placed on a network as a page: stages over time, plans, links."""

from __future__ import annotations

from collections.abc import Iterator

from perfc.ir.support import US
from perfc.planning.networks import stage_runs
from perfc.tools import pages
from perfc.tools.charts import Box, box_timeline, interval_text, plan_bars
from perfc.tools.networks.placing import NetworkPlan
from perfc.tools.networks.report import NetworkComparison
from perfc.tools.reports import format_bytes, format_percent, format_quantity, format_us

_FORWARD, _BACKWARD, _SENT, _REST = (
    "forward",
    "backward",
    "sent",
    "gradients, optimizer",
)
_COLORS = {_FORWARD: 0, _BACKWARD: 1, _SENT: 3, _REST: 2}


def network_page(found: NetworkComparison) -> str:
    """Return the page; it loads nothing from anywhere."""
    best = found.best
    plans = [
        plan_bars(found.plans, "Time of a step under each plan"),
        pages.quantity_table(found.plan_lines, "Plans"),
    ]
    stages = [
        _timeline(found, best),
        pages.quantity_table(found.stage_lines, f"Stages of {best.name}"),
    ]
    name = found.question.models.program.name
    return pages.page(
        f"perfc parallel: {name}",
        [
            _heading(found),
            pages.Remarks(found.diagnostics),
            pages.Section("Plans", plans),
            pages.Section(f"Stages of {best.name}", stages),
            pages.Section(
                "Memory of each stage", [pages.Bars([*_memory(found)], "Memory")]
            ),
        ],
    )


def _heading(found: NetworkComparison) -> pages.Heading:
    asked, network = found.question.models.request, found.question.network
    best, speedup = found.best, found.speedup
    rate = (asked.batch or 0) / best.step_s
    badges: list[pages.Badge] = [
        (f"bubble {format_percent(best.bubble)}", ""),
        (f"{format_quantity(rate, '').strip()} samples/s", ""),
    ]
    if speedup is not None and best.name != "even":
        badges.append((f"{speedup:.2f} times as fast as an even split", ""))
    return pages.Heading(
        f"{found.question.models.program.name} on {best.gpus} of {network.gpus} GPUs",
        asked=(
            f"{asked.mode} of {asked.batch:,} samples",
            f"{found.question.microbatches} microbatches, {best.problem.schedule}",
            f"{asked.dtype}, {asked.runtime}",
        ),
        answer=format_us(best.step_s * US),
        label=f"Step of {best.name}:",
        remark=interval_text(found.plans[0]),
        badges=badges,
    )


def _timeline(found: NetworkComparison, plan: NetworkPlan) -> pages.Timeline:
    """Draw what stages, and the links behind them, do with each microbatch."""
    problem = plan.problem
    nodes = [stage["node"] for stage in found.stages(plan)]
    boxes: list[Box] = []
    for run in stage_runs(plan.times, problem.microbatches, problem.schedule):
        if run.end_s <= run.start_s:
            continue
        lane = f"stage {run.stage}, {nodes[run.stage]}"
        kind = _BACKWARD if run.backward else _FORWARD
        name = f"microbatch {run.microbatch}, {kind}"
        if run.microbatch < 0:
            kind = name = _REST
        if run.link:
            way = "back" if run.backward else "on"
            lane, kind = f"link {run.stage} to {run.stage + 1}, {way}", _SENT
        boxes.append(Box(lane, name, kind, run.start_s, run.end_s))
    boxes.sort(
        key=lambda box: (int(box.lane.split()[1].rstrip(",")), "link" in box.lane)
    )
    text = f"What stages and links do, over {format_us(plan.step_s * US)}."
    return box_timeline(boxes, _COLORS, text)


def _memory(found: NetworkComparison) -> Iterator[pages.Bar]:
    best = found.best
    for number, (unit, need) in enumerate(
        zip(best.placed.units, best.memory, strict=True)
    ):
        share = format_percent(need / best.problem.units[unit].limit_bytes)
        yield pages.Bar(f"stage {number}", need, format_bytes(need), share, "memory")
