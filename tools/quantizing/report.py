"""Plans of precision: as a table to read, and as `perfc.quantize/1`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import ClassVar

import attrs

from perfc.costmodels import Target
from perfc.ir import Diagnostic
from perfc.ir.support import Json, brief
from perfc.tools import reports
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

    @property
    def plans(self) -> tuple[reports.PricedPlan, ...]:
        """What all verbs say of the plans."""
        return self._plans

    @functools.cached_property
    def _plans(self) -> tuple[reports.PricedPlan, ...]:
        errors = [one.report.errors if one.fits else None for one in self.plans_made]
        return reports.with_probabilities(
            [one.priced for one in self.plans_made], errors
        )

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

    def _text(self) -> str:
        parts = [_title(self), reports.columns_text(plan_table(self))]
        parts += [part for part in (_kept_text(self.best), _frontier(self)) if part]
        told = [f"{one.level.value}: {one.message}" for one in self.diagnostics]
        return "\n\n".join([*parts, *told]) + "\n"


def _title(found: Quantization) -> str:
    report = found.best.report
    batch = "" if report.model.batch is None else f", batch {report.model.batch:,}"
    return f"{report.model.name}{batch} on {found.target.name}, {report.runtime}"


def plan_table(found: Quantization) -> list[tuple[str, ...]]:
    """Return a heading, and a row for each plan."""
    rows: list[tuple[str, ...]] = [
        (
            *("plan", "time", "90 % interval", "against", "P(fastest)", "device alone"),
            *("tables", "rest", "peak memory", "casts", "bound by"),
        )
    ]
    base_us = found.original.report.time_us
    for one, priced in zip(found.plans_made, found.plans, strict=True):
        low_us, high_us = one.report.interval_us
        alone_us = one.report.summary["device_only_us"]
        peak = reports.format_bytes(one.report.memory_use.peak_bytes)
        rows.append(
            (
                one.name,
                reports.format_us(one.report.time_us),
                f"{reports.format_us(low_us)} to {reports.format_us(high_us)}",
                ""
                if one is found.original
                else reports.format_change(one.report.time_us / base_us - 1),
                priced.chance,
                "-" if alone_us is None else reports.format_us(alone_us),
                reports.format_bytes(one.tables_bytes),
                reports.format_bytes(one.rest_bytes),
                peak if one.fits else f"{peak}, too much",
                str(one.casts),
                one.report.bound,
            )
        )
    return rows


def _kept_text(plan: PrecisionPlan) -> str:
    """Say what has the type that it had, and why."""
    lines: list[str] = []
    for reason in dict.fromkeys(one.reason for one in plan.kept):
        same = [
            f"{one.name} ({one.dtype})" for one in plan.kept if one.reason == reason
        ]
        more = f", and {len(same) - _SHOWN} more" if len(same) > _SHOWN else ""
        lines.append(f"Kept, {_REASONS[reason]}: {', '.join(same[:_SHOWN])}{more}")
    return "\n".join(lines)


_REASONS = {
    "keep": "as --keep says",
    "budget": "as their losses do not fit into the budget",
    "no gain": "as they save no time",
    "unfit": "as their sizes, or what else reads them, do not allow the type",
    "not asked": "as no type is asked for them",
}


def frontier_table(points: Sequence[Frontier]) -> list[tuple[str, ...]]:
    """Return a heading, and a row for each point of the frontier."""
    rows: list[tuple[str, ...]] = [
        ("loss", "time", "device alone", "quantized", "kept")
    ]
    for one in points:
        alone_us = one.device_only_us
        rows.append(
            (
                f"{one.loss:g}",
                reports.format_us(one.time_us),
                "-" if alone_us is None else reports.format_us(alone_us),
                str(one.quantized),
                str(one.kept),
            )
        )
    return rows


def _frontier(found: Quantization) -> str:
    if not found.frontier:
        return ""
    head = (
        f"Time against loss; the budget is {found.budget:g}, the plan loses "
        f"{found.loss:g}"
    )
    return f"{head}\n{reports.columns_text(frontier_table(found.frontier))}"


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
