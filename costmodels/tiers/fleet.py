"""Hosts that serve a load, what they draw, and what tiers save of it.

    queries a host = min(compute, DRAM, drive_share * X_max / reads a query, SLA)
    hosts          = ceil(load / queries a host)
    saving         = 1 - watts / watts of the base

Hosts that several models share draw P / u for one of them at utilisation u. Of SDM
(arXiv 2110.11489) only the abstract's range, 5 to 29 % of power saved, is known; the
scenarios that reach it are inputs that say themselves that they are recalled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from perfc.costmodels.constants import constants
from perfc.costmodels.machine import Tier
from perfc.costmodels.tiers.drive import MEAN, load_within
from perfc.costmodels.tiers.limits import Rates
from perfc.costmodels.tiers.use import tier_watts
from perfc.ir import PerfcError

DRIVE_SHARE = constants("tiers").number("drive_share")
"""Share of a drive's reads a second that a host plans with."""

_ROUNDING = 1e-12


@attrs.frozen(kw_only=True)
class QueryDemand:
    """What one query takes of a host."""

    compute_s: float = 0.0
    """Seconds of the whole host, or of its accelerators."""
    dram_bytes: float = 0.0
    block_reads: float = 0.0
    """Reads of the tier's medium."""
    bus_bytes: float = 0.0
    """Over the tier's bus."""


@attrs.frozen(kw_only=True)
class ReadPlan:
    """How far a host goes with a tier."""

    tier: Tier
    share: float = DRIVE_SHARE
    """Share of its reads a second."""
    within_s: float = math.inf
    """Latency that a read may have, of the query's latency target."""
    which: str = MEAN
    """Latency that is meant: `mean` or `p99`."""


def queries_per_host(
    demand: QueryDemand,
    dram_bytes_per_s: float = math.inf,
    plan: ReadPlan | None = None,
) -> Rates:
    """Return the queries a second that each resource of a host allows.

    Args:
        demand: Of one query.
        dram_bytes_per_s: That rows reach.
        plan: For the tier that it reads; None if it reads none.

    """
    needs = {
        "compute": (1.0, demand.compute_s),
        "DRAM": (dram_bytes_per_s, demand.dram_bytes),
    }
    if plan is not None:
        needs["reads"] = plan.share * plan.tier.reads_per_s, demand.block_reads
        needs["bandwidth"] = plan.tier.read_bytes_per_s, demand.bus_bytes
        if math.isfinite(plan.within_s):
            within = load_within(plan.tier, plan.within_s, plan.which)
            needs["latency"] = within, demand.block_reads
    return Rates({k: has / wants for k, (has, wants) in needs.items() if wants > 0})


def hosts_for(load_per_s: float, per_host_per_s: float) -> int:
    """Return how many hosts serve a load."""
    if not 0 < per_host_per_s < math.inf or load_per_s < 0:
        msg = (
            f"a load of {load_per_s:g} a second on hosts that serve {per_host_per_s:g}:"
            " expected more than 0"
        )
        raise PerfcError(msg)
    return math.ceil(load_per_s / per_host_per_s * (1 - _ROUNDING))


@attrs.frozen(kw_only=True)
class HostGroup:
    """Hosts that are alike."""

    hosts: float
    host_watts: float
    """Power without tiers; in any unit, if all groups have it."""
    tiers: tuple[Tier, ...] = ()
    utilisation: float = 1.0
    """Share of a host that the model has; the rest is of others."""

    @property
    def watts(self) -> float:
        """Power of all hosts, with their tiers."""
        if not 0 < self.utilisation <= 1:
            msg = f"utilisation {self.utilisation:g}: expected more than 0, at most 1"
            raise PerfcError(msg)
        each = self.host_watts + math.fsum(tier_watts(t)[0] for t in self.tiers)
        return self.hosts * each / self.utilisation


def saving(base: Sequence[HostGroup], plan: Sequence[HostGroup]) -> float:
    """Return the share of a fleet's power that a plan saves; below 0: it takes more."""
    before, after = (
        math.fsum(group.watts for group in fleet) for fleet in (base, plan)
    )
    if before <= 0:
        msg = f"a base of {before:g} W: expected more than 0"
        raise PerfcError(msg)
    return (before - after) / before


def samples_per_joule(samples_per_s: float, watts: float) -> float:
    """Return how much is done with a joule."""
    if watts <= 0:
        msg = f"{watts:g} W: expected more than 0"
        raise PerfcError(msg)
    return samples_per_s / watts


def drive_writes_per_day(tier: Tier, nbytes: float, days: float) -> float:
    """Return how often a day a tier's whole capacity is written.

    Args:
        tier: The tier.
        nbytes: That a refresh of its tables writes.
        days: Between two refreshes.

    """
    if days <= 0:
        msg = f"{days:g} days between refreshes: expected more than 0"
        raise PerfcError(msg)
    return nbytes / days / tier.capacity_bytes


def wear_warning(tier: Tier, nbytes: float, days: float) -> str:
    """Return a warning of a tier that its writes wear out; empty if they do not."""
    written = drive_writes_per_day(tier, nbytes, days)
    if tier.writes_per_day is None or written <= tier.writes_per_day:
        return ""
    return (
        f"tier {tier.name} is written {written:.3g} times a day, more than the "
        f"{tier.writes_per_day:g} that it endures"
    )
