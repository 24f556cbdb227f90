"""What verbs say alike of the alternatives that they rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from perfc.ir.support import Json
from perfc.passes.timing import TimeErrors, probabilities_best
from perfc.tools.reports.numbers import format_percent, format_us

if TYPE_CHECKING:
    from perfc.tools.reports.report import Report


@attrs.frozen(kw_only=True)
class PricedPlan:
    """One of the alternatives that a search ranked; None is what nobody knows.

    Attributes:
        name: What its verb calls it.
        time_us: Time of a step.
        time_us_p05: 5th percentile of the time.
        time_us_p95: 95th percentile.
        energy_j: Of a step, all boards together.
        peak_memory_bytes: Of the device that needs most.
        probability_best: That no other plan of those that fit is faster.

    """

    name: str
    time_us: float
    time_us_p05: float | None = None
    time_us_p95: float | None = None
    energy_j: float | None = None
    peak_memory_bytes: float | None = None
    probability_best: float | None = None

    def to_dict(self) -> Json:
        """Return an entry of `plans` of a document."""
        return attrs.asdict(self)

    @property
    def chance(self) -> str:
        """How probable it is that no other plan is faster, for a table."""
        if self.probability_best is None:
            return "-"
        return format_percent(self.probability_best)

    @property
    def interval(self) -> str:
        """The interval of its time, for a table; empty where nobody knows it."""
        if self.time_us_p05 is None or self.time_us_p95 is None:
            return ""
        return f"{format_us(self.time_us_p05)} to {format_us(self.time_us_p95)}"


def with_probabilities(
    plans: Sequence[PricedPlan], errors: Sequence[TimeErrors | None]
) -> tuple[PricedPlan, ...]:
    """Return plans with how probable it is that each is the fastest.

    Args:
        plans: The plans.
        errors: Of the time of each; None of those that cannot be the best, or of whose
            errors nothing is known.

    """
    known = [number for number, each in enumerate(errors) if each is not None]
    chances = probabilities_best([each for each in errors if each is not None])
    found = dict(zip(known, chances, strict=True))
    return tuple(
        attrs.evolve(plan, probability_best=found.get(number))
        for number, plan in enumerate(plans)
    )


def plan_of(name: str, report: Report) -> PricedPlan:
    """Return the plan of this name that a report is of."""
    low_us, high_us = report.interval_us
    return PricedPlan(
        name=name,
        time_us=report.time_us,
        time_us_p05=low_us,
        time_us_p95=high_us,
        energy_j=report.summary["energy_j"],
        peak_memory_bytes=report.memory_use.peak_bytes,
    )
