"""Measured collectives of one machine as rows of its profile."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from perfc.costmodels import COLLECTIVES, KernelTable, Target, collectives
from perfc.costmodels.kernels import Floats
from perfc.costmodels.pricing import COLLECTIVE_TIMINGS, price_table
from perfc.measurements import TEST, Measurement, MeasurementError, kernel_of

_LEAST_APART = 8.0
"""How many times the smallest message's bytes the largest must have, for two to tell
of starts and of rates."""

_MOST = 2.5
"""Times the links' rate, beyond which no row is believed: a switch that adds up halves
what a GPU sends, and the links of a sheet may be a little off."""


@attrs.frozen(eq=False)
class CollectiveFit:
    """What was learnt.

    Attributes:
        rows: For the profile.
        before: Mean |predicted / measured - 1| of the model as it was.
        after: The same of each row told by all others; None of a single row.

    """

    rows: collectives.CollectiveRows
    before: float
    after: float | None


def is_collective(row: Measurement) -> bool:
    """Whether a row says what a collective takes."""
    return row.op in COLLECTIVES and row.timing in COLLECTIVE_TIMINGS


def fit_collectives(
    rows: Sequence[Measurement], target: Target
) -> CollectiveFit | None:
    """Return the fit of *target* to the collectives among rows; None if there are none.

    Rows that are marked `test` say nothing.
    """
    chosen = [row for row in rows if is_collective(row) and row.split != TEST]
    if not chosen:
        return None
    table = KernelTable([kernel_of(row) for row in chosen])
    measured_s = np.array([row.latency_us for row in chosen]) * 1e-6
    c, p = collectives.Collectives.of(table), collectives.collective_parameters()
    links = collectives.collective_links(target, several=bool((c.nodes > 1).any()))
    _check_rates(chosen, c, measured_s, target)
    # Refuse what tells either of starts or of rates, but not of both.
    least, most = float(c.bytes.min()), float(c.bytes.max())
    if most < _LEAST_APART * least:
        sizes = f"{least:,.0f}" if least == most else f"{least:,.0f} to {most:,.0f}"
        msg = (
            f"{len(chosen)} measured collective{'s' * (len(chosen) > 1)} of {sizes} "
            "bytes: "
            "expected a small message and a large one, as 8 KB and 32 MB; one tells of "
            "what starts a collective, the other of rates"
        )
        raise MeasurementError(msg)
    seconds = price_table(table, target, [collectives.COLLECTIVE]).seconds
    off = np.log(measured_s / seconds)
    found = collectives.weighed(c, off, links, p)
    left = collectives.left_out_one_by_one(c, off, links, p)
    after = _mape(seconds * np.exp(left), measured_s) if len(chosen) > 1 else None
    return CollectiveFit(found, _mape(seconds, measured_s), after)


def _check_rates(
    rows: Sequence[Measurement],
    c: collectives.Collectives,
    measured_s: Floats,
    target: Target,
) -> None:
    """Refuse what in a node goes faster than its links: times in another unit."""
    own = collectives.collective_links(target, several=False)
    least_s = c.wire / (_MOST * np.maximum(collectives.node_rate(c, own), 1.0))
    faster = np.flatnonzero((c.nodes <= 1) & (measured_s < least_s))
    if len(faster):
        at = int(faster[0])
        row, us = rows[at], measured_s[at] * 1e6
        reached = c.wire[at] / measured_s[at] / 1e9
        links = collectives.node_rate(c, own)[at] / 1e9
        msg = (
            f"{row.op} of {c.bytes[at]:,.0f} bytes in {us:g} us: "
            f"{reached:,.0f} GB/s leave each GPU of {target.name}, whose links have "
            f"{links:,.0f}; are its times in microseconds, and of this system?"
        )
        raise MeasurementError(msg)


def _mape(seconds: Floats, measured_s: Floats) -> float:
    return float(np.abs(seconds / measured_s - 1).mean())
