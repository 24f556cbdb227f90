"""What verbs say alike of the alternatives that they rank."""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs

Json: TypeAlias = dict[str, Any]


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
        probability_best: That no other plan is faster.

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
