"""Plans of precision: as a table to read, and as `perfc.quantize/1`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import attrs

from perfc.costmodels import Target
from perfc.ir import Diagnostic
from perfc.ir.support import Json, brief
from perfc.passes.timing import TimeErrors
from perfc.tools import charts, pages, reports
from perfc.tools.quantizing.plan import Frontier, PrecisionPlan
from perfc.tools.request import Request

_SHOWN = 12
"""Kept ops that a table names."""


@attrs.frozen(eq=False, kw_only=True)
class Quantization(reports.VerbResult):
    """A model as it is, quantised as asked, and in the types to compare.

    Attributes:
        request: What was asked; its model is loaded.
        target: The target.
        plans_made: The plan asked for or found, the original, then those compared.
        frontier: The fastest plans by loss, where losses are given.
        budget: What losses might add up to; None without losses.
        loss: What those of the plan add up to.
        remarks: What there is to say of the plan.

    """

    __repr__ = brief
    schema: ClassVar[str] = "perfc.quantize/1"

    request: Request
    target: Target
    plans_made: tuple[PrecisionPlan, ...]
    frontier: tuple[Frontier, ...]
    budget: float | None
    loss: float | None
    remarks: tuple[Diagnostic, ...]

    @property
    def best(self) -> PrecisionPlan:
        """The plan that was asked for, or found."""
        return self.plans_made[0]

    @property
    def original(self) -> PrecisionPlan:
        """The model as it is."""
        return self.plans_made[1]

    @property
    def rows(self) -> list[Json]:
        """What there is to say of each plan."""
        made = zip(self.plans_made, self.plans, strict=True)
        return [_row(one, priced, self.original) for one, priced in made]

    def _priced(self) -> Iterator[tuple[reports.PricedPlan, TimeErrors | None]]:
        for one in self.plans_made:
            yield one.priced, one.report.errors if one.fits else None

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Remarks on the plan, and of the pipeline on the plan and the original."""
        found = [*self.best.report.diagnostics, *self.original.report.diagnostics]
        return tuple(dict.fromkeys([*self.remarks, *found]))

    def _document(self) -> Json:
        best, report = self.best, self.best.report
        return {
            "model": report.model.name,
            "target": self.target.name,
            "runtime": report.runtime,
            "batch": report.model.batch,
            "bound": report.bound,
            "tables_bytes": best.tables_bytes,
            "rest_bytes": best.rest_bytes,
            "casts": best.casts,
            "kept": [attrs.asdict(one) for one in best.kept],
            "tables": best.tables,
            "budget": self.budget,
            "loss": self.loss,
            "ops": [attrs.asdict(one) for one in best.choices],
            "frontier": [attrs.asdict(one) for one in self.frontier],
            "plans": self.rows,
        }

    @property
    def parts(self) -> list[pages.Part]:
        """What was asked, the plans, what is kept, and the frontier."""
        best, report = self.best, self.best.report
        batch = "" if report.model.batch is None else f", batch {report.model.batch:,}"
        title = f"{report.model.name}{batch} on {self.target.name}, {report.runtime}"
        change = report.time_us / self.original.report.time_us - 1
        text = f"{reports.format_change(change)} against the original"
        badges: list[pages.Badge] = [
            (text, "good" if change < 0 else "bad"),
            ("fits in memory", "good") if best.fits else ("does not fit", "bad"),
            (f"bound by {report.bound}", ""),
        ]
        answer = self.plans[0], f"Step of {best.name}:", badges
        return [
            charts.plan_heading(title, *answer),
            charts.plan_bars(self.plans, "Time of a step under each plan"),
            pages.table(map(self._cells, self.plans_made, self.plans), "Plans"),
            pages.Drawn(self._pictures, [pages.Text("\n".join(_kept_lines(best)))]),
            *self._frontier(),
            pages.Remarks(
                self.diagnostics, form="{0.level.value}: {0.message}", between="\n\n"
            ),
        ]

    def _cells(self, one: PrecisionPlan, plan: reports.PricedPlan) -> dict[str, str]:
        change = one.report.time_us / self.original.report.time_us - 1
        peak = reports.format_bytes(one.report.memory_use.peak_bytes)
        return {
            "plan": one.name,
            "time": reports.format_us(plan.time_us),
            "90 % interval": plan.interval,
            "against": "" if one is self.original else reports.format_change(change),
            "P(fastest)": plan.chance,
            "device alone": _alone(one.report.summary["device_only_us"]),
            "tables": reports.format_bytes(one.tables_bytes),
            "rest": reports.format_bytes(one.rest_bytes),
            "peak memory": peak if one.fits else f"{peak}, too much",
            "casts": str(one.casts),
            "bound by": one.report.bound,
        }

    def _pictures(self) -> Iterator[pages.Part]:
        """Draw time over memory, and list what is kept op by op."""
        usable = self.target.device.memory.usable_bytes
        chart = charts.time_and_memory(self.plans, usable)
        yield from [] if chart is None else [chart]
        kept = (
            {"op": k.name, "type": k.dtype, "reason": k.reason} for k in self.best.kept
        )
        if self.best.kept:
            yield pages.table(kept, "Kept as they are", search=True)

    def _frontier(self) -> Iterator[pages.Part]:
        """Yield the fastest plan of each loss, where losses are given."""
        if not self.frontier or self.budget is None or self.loss is None:
            return
        x, y = zip(*((one.loss, one.time_us) for one in self.frontier), strict=True)
        notes = [
            f"loss {one.loss:g}: {reports.format_us(one.time_us)}, {one.quantized} "
            "quantized"
            for one in self.frontier
        ]
        ends, mine = ([self.budget] * 2, [min(y), max(y)]), self.best.report.time_us
        series = [
            pages.Series("fastest plan of each loss", x, y, drawn="steps"),
            pages.Series("plans", x, y, notes=notes),
            pages.Series("budget", *ends, drawn="dashes", color=-1),
            pages.Series(self.best.name, [self.loss], [mine], color=1),
        ]
        axes = pages.Axis("loss"), pages.Axis("time of a step", "us")
        text = "No plan of less loss is faster than the line."
        rows = (
            {
                "loss": f"{one.loss:g}",
                "time": reports.format_us(one.time_us),
                "device alone": _alone(one.device_only_us),
                "quantized": str(one.quantized),
                "kept": str(one.kept),
            }
            for one in self.frontier
        )
        yield pages.Section(
            f"Time against loss; the budget is {self.budget:g}, the plan loses "
            f"{self.loss:g}",
            [pages.Chart(*axes, series, text), pages.table(rows, "Frontier")],
            titled=True,
        )


def _alone(device_us: float | None) -> str:
    return "-" if device_us is None else reports.format_us(device_us)


def _kept_lines(plan: PrecisionPlan) -> Iterator[str]:
    for reason in dict.fromkeys(one.reason for one in plan.kept):
        same = [f"{k.name} ({k.dtype})" for k in plan.kept if k.reason == reason]
        more = f", and {len(same) - _SHOWN} more" if len(same) > _SHOWN else ""
        yield f"Kept, {_REASONS[reason]}: {', '.join(same[:_SHOWN])}{more}"


_REASONS = {
    "keep": "as --keep says",
    "budget": "as their losses do not fit into the budget",
    "no gain": "as they save no time",
    "unfit": "as their sizes, or what else reads them, do not allow the type",
    "not asked": "as no type is asked for them",
}


def _row(one: PrecisionPlan, said: reports.PricedPlan, original: PrecisionPlan) -> Json:
    return {
        **said.to_dict(),
        "step_us": one.report.time_us,
        "saved_us": original.report.time_us - one.report.time_us,
        "device_only_us": one.report.summary["device_only_us"],
        "tables_bytes": one.tables_bytes,
        "rest_bytes": one.rest_bytes,
        "casts": one.casts,
        "kept": len(one.kept),
        "bound": one.report.bound,
        "fits": one.fits,
    }
