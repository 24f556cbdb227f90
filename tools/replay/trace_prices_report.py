"""How much of a trace's device time is predicted, in both forms of a report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs

from perfc.ir.launch import BUSY_KINDS
from perfc.tools.replay.kernel_prices import By, TracePrices
from perfc.tools.reports import format_change

_MEANING: Mapping[By, str] = {
    By.MODEL: "priced by a cost model of their op",
    By.FACTS: "priced by the bytes that the trace tells",
    By.COLLECTIVE: "collectives: what they send; they wait for other ranks, too",
    By.MEASURED: "as measured",
}


_NO_ERROR = frozenset({By.COLLECTIVE, By.MEASURED})
"""What is no prediction of what was measured."""


@attrs.define
class _Sum:
    """Launches that are known in the same way."""

    launches: int = 0
    measured_us: float = 0.0
    predicted_us: float = 0.0

    @property
    def error(self) -> float | None:
        """Predicted / measured - 1."""
        return self.predicted_us / self.measured_us - 1 if self.measured_us else None


def _sums(prices: TracePrices) -> dict[By, _Sum]:
    graph = prices.ops.recorded.graph
    found = {by: _Sum() for by in By}
    for task, kind in enumerate(graph.kind):
        if kind not in BUSY_KINDS:
            continue
        by, predicted_s = _known(prices, task)
        own = found[by]
        own.launches += 1
        own.measured_us += graph.stated_s[task] * 1e6
        own.predicted_us += predicted_s * 1e6
    return found


def _known(prices: TracePrices, task: int) -> tuple[By, float]:
    """Return the way that a task's time is known, and its predicted seconds."""
    price, sent = prices.prices.get(task), prices.collectives.sent.get(task)
    if price is not None:
        return price.by, price.seconds
    if sent is not None:
        return By.COLLECTIVE, sent.seconds
    return By.MEASURED, prices.ops.recorded.graph.stated_s[task]


def kernels_json(prices: TracePrices) -> dict[str, Any]:
    """Return the target, and launches, measured and predicted time by what is known."""
    sums = _sums(prices)
    return {
        "target": prices.target.name,
        **{by.value: {**attrs.asdict(s), "error": s.error} for by, s in sums.items()},
    }


def kernel_lines(prices: TracePrices) -> list[tuple[str, ...]]:
    """Return a table of the same: a heading, and rows."""
    sums = _sums(prices)
    total_us = math.fsum(s.measured_us for s in sums.values()) or 1.0
    header = (f"kernels on {prices.target.name}", "share", "measured", "predicted")
    rows: list[tuple[str, ...]] = [(*header, "error", "")]
    for by, own in sums.items():
        error = "-" if own.error is None else format_change(own.error)
        rows.append(
            (
                f"{own.launches:,} launches",
                f"{100 * own.measured_us / total_us:.1f} %",
                f"{own.measured_us / 1e3:,.2f} ms",
                f"{own.predicted_us / 1e3:,.2f} ms",
                "" if by in _NO_ERROR else error,
                _MEANING[by],
            )
        )
    return rows
