"""Deduplicated lookups: as text and as `perfc.dedup/1`."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import attrs

from perfc.ir import Diagnostic
from perfc.ir.support import Json, Level, brief
from perfc.passes.embeddings import FeatureGroup
from perfc.passes.timing import TimeErrors
from perfc.tools import charts, pages, reports
from perfc.tools.dedup.measured import MeasuredSessions
from perfc.tools.request import TRAINING, Request

_LITTLE = 5
"""Percent by which a step is faster below which that is little."""

_KINDS = {
    "lookups_us": "embedding",
    "all_to_all_us": "alltoall",
}
"""What is in the names of the ops of lookups with their updates, and of exchanges."""


@attrs.frozen(eq=False)
class PricedStep:
    """A step with or without deduplication.

    Attributes:
        name: Which.
        report: What the pipeline says of it.
        largest_batch: Samples of a rank that fit; None where the batch is fixed.

    """

    __repr__ = brief

    name: str
    report: reports.Report
    largest_batch: int | None

    @property
    def fits(self) -> bool:
        """Whether every device has room."""
        usable = self.report.target.device.memory.usable_bytes
        return self.report.memory_use.peak_bytes <= usable

    @functools.cached_property
    def parts_us(self) -> dict[str, float]:
        """Device time of lookups, exchanges and expansion: of the rank with most."""
        found: dict[str, dict[int, list[float]]] = {
            **{name: {} for name in _KINDS},
            "expansion_us": {},
        }
        for node in self.report.nodes:
            if not node["stream"]:
                continue
            kinds = [name for name, word in _KINDS.items() if word in node["op"]]
            if node["id"].startswith("dedup."):
                kinds = ["expansion_us"]
            for kind in kinds:
                times = found[kind].setdefault(node["rank"], [])
                times.append(node["duration_us"])
        return {
            name: max(map(math.fsum, of_ranks.values()), default=0.0)
            for name, of_ranks in found.items()
        }


@attrs.frozen(eq=False, kw_only=True)
class Deduplication(reports.VerbResult):
    """A step with lists of sessions deduplicated, and without.

    Attributes:
        request: What was asked.
        session: Mean samples of a session inside a batch.
        measured: What a file says of sessions, if one was given.
        groups: Features that have an inverse index in common.
        steps: The steps: what fits first, then the faster.

    """

    __repr__ = brief
    schema: ClassVar[str] = "perfc.dedup/1"

    request: Request
    session: float
    measured: MeasuredSessions | None
    groups: tuple[FeatureGroup, ...]
    steps: tuple[PricedStep, ...]

    @property
    def rows(self) -> list[Json]:
        """What there is to say of each step."""
        return [
            {
                **plan.to_dict(),
                "step_us": plan.time_us,
                **step.parts_us,
                "largest_batch": step.largest_batch,
                "fits": step.fits,
            }
            for plan, step in zip(self.plans, self.steps, strict=True)
        ]

    def _priced(self) -> Iterator[tuple[reports.PricedPlan, TimeErrors | None]]:
        for one in self.steps:
            plan = reports.plan_of(one.name, one.report)
            yield plan, one.report.errors if one.fits else None

    @property
    def gains_little(self) -> bool:
        """Whether the step is about as fast without."""
        return 100 * (self.gain - 1) < _LITTLE

    @property
    def gain(self) -> float:
        """How many times faster the step is with lists deduplicated."""
        of = {one.name: one.report.time_us for one in self.steps}
        return of["without"] / of["dedup"]

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Remarks on the model, each once, and on a step that gains little."""
        found = [note for one in self.steps for note in one.report.diagnostics]
        if self.measured is not None and self.session == 1:
            found.append(_note("no-sessions", "no batch has two samples of a session"))
        if self.gains_little:
            found.append(_note("little-gain", self._why_little()))
        return tuple(dict.fromkeys(found))

    def _step(self, name: str) -> PricedStep:
        return next(one for one in self.steps if one.name == name)

    def _why_little(self) -> str:
        """Say why a step gains little."""
        before, after = self._step("without"), self._step("dedup")
        times = {k: before.parts_us[k] - after.parts_us[k] for k in _KINDS}
        saved = reports.format_us(max(0.0, math.fsum(times.values())))
        paid = reports.format_us(after.parts_us["expansion_us"])
        where = f"lookups and exchanges take {saved} less, their expansion {paid}"
        if before.parts_us["all_to_all_us"] == 0:
            where += "; tables are in the GPU's own memory, where L2 has repeated rows"
        if before.report.summary["bound"] == "host":
            where += "; the host decides the time of the step"
        what = "gains little" if self.gain >= 1 else "does not pay"
        return f"deduplication {what} here, {self.gain:.2f}x: {where}"

    def _document(self) -> Json:
        asked, report = self.request, self.steps[0].report
        return {
            "model": report.model.name,
            "target": report.target.name,
            "ranks": asked.ranks or 1,
            "batch": report.model.batch,
            "mode": asked.mode,
            "session": self.session,
            "measured": None if self.measured is None else self.measured.to_dict(),
            "groups": [
                {**attrs.asdict(one), "factor": one.factor} for one in self.groups
            ],
            "gain": self.gain,
            "plans": self.rows,
        }

    @property
    def parts(self) -> list[pages.Part]:
        """What was asked, groups, steps, what those are made of, and the gain."""
        by_name = {plan.name: plan for plan in self.plans}
        gain = f"{self.gain:.2f} times as fast"
        badges: list[pages.Badge] = [
            (gain, ("bad" if self.gain <= 1 else "") if self.gains_little else "good"),
            (f"{reports.format_us(by_name['without'].time_us)} without", ""),
        ]
        answer = by_name["dedup"], "Step with lookups deduplicated:", badges
        faster = "" if self.gains_little else f"Deduplicated, the step is {gain}."
        return [
            charts.plan_heading(self._title(), *answer),
            pages.table(map(_group, self.groups), "Groups of features", search=True),
            charts.plan_bars(self.plans, "Time of a step"),
            pages.table(map(_step, self.plans, self.steps), "Steps"),
            _device_time(self.steps),
            pages.Text(faster),
            pages.Remarks(
                self.diagnostics,
                form="Note: {0.message} [{0.code}]",
                between="\n\n",
                codes=("little-gain", "no-sessions"),
            ),
        ]

    def _title(self) -> str:
        report, ranks = self.steps[0].report, self.request.ranks or 1
        what = "training step" if self.request.mode == TRAINING else "inference"
        whose = f"each of {ranks} ranks" if ranks > 1 else "one GPU"
        title = (
            f"{report.model.name}: {what} of {report.model.batch or 1:,} samples on "
            f"{whose} of {report.target.name}\n"
            f"Sessions of {self.session:.4g} samples inside a batch"
        )
        if (found := self.measured) is None:
            return title
        return (
            f"{title}, measured on {found.samples:,} samples of {found.path}: "
            f"{found.whole:.4g} uncut"
        )


def _note(code: str, message: str) -> Diagnostic:
    return Diagnostic(Level.NOTE, code, message)


def _group(one: FeatureGroup) -> dict[str, str]:
    return {
        "group": one.name if len(one.name) < 40 else f"{one.name[:37]}...",  # noqa: PLR2004 - a column
        "tables": str(len(one.tables)),
        "stay": f"{one.stay:.4g}",
        "kept": f"{one.kept:.4g}",
        "factor": f"{one.factor:.2f}x",
    }


def _step(plan: reports.PricedPlan, step: PricedStep) -> dict[str, str]:
    memory = reports.format_bytes(plan.peak_memory_bytes or 0.0)
    most = step.largest_batch
    return {
        "": step.name,
        "step": f"{reports.format_us(plan.time_us)} ({plan.interval})",
        "P(fastest)": plan.chance,
        **{_heading(name): reports.format_us(us) for name, us in step.parts_us.items()},
        "memory": memory if step.fits else f"{memory}, too much",
        "largest batch": "fixed" if most is None else f"{most:,}",
    }


def _device_time(steps: Sequence[PricedStep]) -> pages.Bars:
    bars = [
        pages.Bar(f"{step.name}: {_heading(name)}", us, reports.format_us(us))
        for step in steps
        for name, us in step.parts_us.items()
        if us
    ]
    return pages.Bars(bars, "Device time of the rank that has most of it")


def _heading(name: str) -> str:
    return name.removesuffix("_us").replace("_", "-")
