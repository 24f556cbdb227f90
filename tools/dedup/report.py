"""Deduplicated lookups: as text and as `perfc.dedup/1`."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import ClassVar

import attrs

from perfc.ir import Diagnostic
from perfc.ir.support import Json, Level, brief
from perfc.passes.embeddings import FeatureGroup
from perfc.tools.dedup.measured import MeasuredSessions
from perfc.tools.reports import (
    PricedPlan,
    Report,
    VerbResult,
    columns_text,
    format_bytes,
    format_us,
    plan_of,
    with_probabilities,
)
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
    report: Report
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

    @property
    def priced(self) -> PricedPlan:
        """What all verbs say of it."""
        return plan_of(self.name, self.report)


@attrs.frozen(eq=False, kw_only=True)
class Deduplication(VerbResult):
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

    @property
    def plans(self) -> tuple[PricedPlan, ...]:
        """What all verbs say of the steps."""
        return self._plans

    @functools.cached_property
    def _plans(self) -> tuple[PricedPlan, ...]:
        errors = [one.report.errors if one.fits else None for one in self.steps]
        return with_probabilities([one.priced for one in self.steps], errors)

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
        reports = [one.report for one in self.steps]
        found = [remark for report in reports for remark in report.diagnostics]
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
        saved = format_us(max(0.0, math.fsum(times.values())))
        paid = format_us(after.parts_us["expansion_us"])
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
                {
                    "name": group.name,
                    "tables": list(group.tables),
                    "stay": group.stay,
                    "kept": group.kept,
                    "factor": group.factor,
                }
                for group in self.groups
            ],
            "gain": self.gain,
            "plans": self.rows,
        }

    def _text(self) -> str:
        report, ranks = self.steps[0].report, self.request.ranks or 1
        what = "training step" if self.request.mode == TRAINING else "inference"
        whose = f"each of {ranks} ranks" if ranks > 1 else "one GPU"
        title = (
            f"{report.model.name}: {what} of {report.model.batch or 1:,} samples on "
            f"{whose} of {report.target.name}\n"
            f"Sessions of {self.session:.4g} samples inside a batch"
        )
        if self.measured is not None:
            found = self.measured
            title += (
                f", measured on {found.samples:,} samples of {found.path}: "
                f"{found.whole:.4g} uncut"
            )
        parts = [title, columns_text(group_rows(self))]
        parts += [columns_text(step_rows(self)), *self._remarks()]
        return "\n\n".join(parts) + "\n"

    def _remarks(self) -> Iterator[str]:
        if not self.gains_little:
            yield f"Deduplicated, the step is {self.gain:.2f} times as fast."
        yield from (
            f"Note: {one.message} [{one.code}]"
            for one in self.diagnostics
            if one.code in ("little-gain", "no-sessions")
        )


def group_rows(found: Deduplication) -> list[tuple[str, ...]]:
    """Return a heading, and a row for each group of features."""
    head = ("group", "tables", "stay", "kept", "factor")
    rows: list[tuple[str, ...]] = [head]
    for one in found.groups:
        name = one.name if len(one.name) < 40 else f"{one.name[:37]}..."  # noqa: PLR2004 - a column
        count, factor = str(len(one.tables)), f"{one.factor:.2f}x"
        rows.append((name, count, f"{one.stay:.4g}", f"{one.kept:.4g}", factor))
    return rows


def _note(code: str, message: str) -> Diagnostic:
    return Diagnostic(Level.NOTE, code, message)


def step_rows(found: Deduplication) -> list[tuple[str, ...]]:
    """Return a heading, and a row for each step."""
    head = ("", "step", "P(fastest)", "lookups", "all-to-all", "expansion")
    rows: list[tuple[str, ...]] = [(*head, "memory", "largest batch")]
    for plan, step in zip(found.plans, found.steps, strict=True):
        low, high = plan.time_us_p05 or 0.0, plan.time_us_p95 or 0.0
        shares = [format_us(step.parts_us[name]) for name in step.parts_us]
        interval = f"{format_us(low)} to {format_us(high)}"
        memory = format_bytes(plan.peak_memory_bytes or 0.0)
        most = "fixed" if step.largest_batch is None else f"{step.largest_batch:,}"
        rows.append(
            (
                step.name,
                f"{format_us(plan.time_us)} ({interval})",
                plan.chance,
                *shares,
                memory if step.fits else f"{memory}, too much",
                most,
            )
        )
    return rows
