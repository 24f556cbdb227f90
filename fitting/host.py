"""Host times from measured rows: what a profile says for `--overheads`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np

from perfc.costmodels import HostProfile, PerName
from perfc.measurements import TEST, Measurement

HOST_OP = "host_overhead"
"""`op` of the rows; `params` say which `type` of time, and of which `op`."""

_NORMAL = 2 * 1.2815515655446004
"""Between the tenth and the ninetieth percentile of a normal distribution."""

_SHARED = 0.1
"""Shared sigma of one host on another day: chosen, not fitted."""


@attrs.frozen
class HostFit:
    """A host profile, and where it comes from.

    Attributes:
        profile: The times.
        rows: How many rows said so.
        remarks: What was left as it was.

    """

    profile: HostProfile
    rows: int
    remarks: tuple[str, ...]


def fit_host(rows: Sequence[Measurement], base: HostProfile) -> HostFit | None:
    """Return *base* with what the rows say; None if they say nothing of a host.

    Rows that are marked `test` say nothing.
    """
    found = [row for row in rows if row.op == HOST_OP and row.split != TEST]
    if not found:
        return None
    profile = base
    t1 = _mean_us(found, "T1")
    if t1 is not None:
        profile = attrs.evolve(profile, t1_s=t1 * 1e-6)
    profile = attrs.evolve(
        profile,
        t2_s=_merged(base.t2_s, found, "T2"),
        t3_s=_merged(base.t3_s, found, "T3"),
        t5_s=_merged(base.t5_s, found, "T5"),
        t0_s=_merged(base.t0_s, found, "T0"),
    )
    spread = [_sigma(row) for row in found if row.p10_us and row.p90_us]
    own = float(np.median(spread)) if spread else base.sigma_independent
    profile = attrs.evolve(
        profile,
        sigma_shared=_SHARED,
        sigma_scaled=None,  # that is the base's
        sigma_independent=min(max(own, 0.01), 1.0),
    )
    remarks = () if t1 is not None else (f"no T1 row: {base.name}'s is kept",)
    return HostFit(profile, len(found), remarks)


def _merged(base: PerName, rows: Sequence[Measurement], type_: str) -> PerName:
    own = {
        row.params.text("op", ""): row.latency_us * 1e-6
        for row in rows
        if row.params.text("type", "") == type_
    }
    if not own:
        return base
    default = own.pop("", base.default_s)
    return PerName(default, {**base.named_s, **own})


def _mean_us(rows: Sequence[Measurement], type_: str) -> float | None:
    """Return the mean over all events of a type, weighted by their number."""
    mine = [row for row in rows if row.params.text("type", "") == type_]
    whole = [row for row in mine if not row.params.text("op", "")]
    chosen = whole or mine
    weight = [row.n or 1 for row in chosen]
    if not chosen:
        return None
    return float(np.average([row.latency_us for row in chosen], weights=weight))


def _sigma(row: Measurement) -> float:
    low, high = row.p10_us or 0.0, row.p90_us or 0.0
    return math.log(max(high, low, 1e-9) / max(low, 1e-9)) / _NORMAL
