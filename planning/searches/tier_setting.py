"""What a placement of tables in tiers takes: time of a query, hosts, watts, money.

    time   = base + exposed,  exposed = max(0, slowest tier - what runs beside)
    hosts  = ceil(load of the fleet / queries a host)
    watts  = hosts (watts of a host + those of the tiers that it uses)

`base` is the time with all tables in the memory that the device works from, whose
lookups run wherever rows come from. All of these only grow with what tables ask of
tiers, which searches rely on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from perfc.costmodels import tiers as tier_models
from perfc.costmodels.machine import Tier
from perfc.costmodels.sheets import DRAM, HBM
from perfc.costmodels.tiers import (
    DRIVE_SHARE,
    MEAN,
    Busy,
    QueryDemand,
    Rates,
    ReadPlan,
    TierDemand,
    TierUse,
)
from perfc.ir import PerfcError

OBJECTIVES = TIME, POWER, COST = "time", "power", "cost"
"""What a placement may have least of: a query's time, watts, money for memory."""

_ALL_AT_ONCE = 2.0**53
"""Reads that a memory without commands has in flight: nothing counts them."""

_TIE = 1e-6
"""Share of itself that a score grows by with the time of tiers: what is hidden, or
costs no watts, still decides between placements that are alike otherwise."""


@attrs.frozen(kw_only=True)
class LatencyTarget:
    """How long a query may take: its mean, or the time that 99 of 100 are within."""

    seconds: float
    which: str = MEAN

    def __str__(self) -> str:
        return f"{self.which}={self.seconds * 1e3:g}ms"


@attrs.frozen(kw_only=True)
class HostService:
    """What a host has for queries besides tiers, and what it draws."""

    compute_s: float = 0.0
    """Seconds of the whole host that one query takes, wherever tables lie."""
    dram_bytes: float = 0.0
    """Bytes of rows that one query reads of the host's DRAM."""
    dram_bytes_per_s: float = math.inf
    """What rows reach."""
    watts: float | None = None
    """Power without tiers; None where nobody says it."""


@attrs.frozen(kw_only=True)
class TierSetting:
    """What all placements of some tables have in common."""

    tiers: tuple[Tier, ...]
    """Memories that tables may lie in; their capacity is what tables may take."""
    native: str
    """Name of the tier that the device works from: its tables are in `base_s`."""
    base_s: float
    """Time of a query with all tables there."""
    dense_s: float = 0.0
    """Part of it that runs beside the reads of tiers, whatever lies where."""
    lookup_s: float = 0.0
    """Part of it that looks up; the share of tables that lie there runs beside."""
    overlap: bool = True
    """Whether anything runs beside reads of tiers."""
    queries_per_s: float = 1.0
    """On one host."""
    in_flight: float = 1.0
    """Reads that a query has under way at one drive."""
    away_s_per_byte: float = 0.0
    """What a byte takes from the host to the device; 0 where they are one."""
    target: LatencyTarget | None = None
    objective: str = TIME
    fleet_per_s: float = 1.0
    """Queries of all hosts."""
    service: HostService = HostService()

    def excess(self, demands: Sequence[TierDemand]) -> float:
        """Return by which shares tiers are asked for too much, added up; 0 if not."""
        rate, found = self.queries_per_s, 0.0
        for tier, demand in zip(self.tiers, demands, strict=True):
            found += max(demand.stored_bytes / tier.capacity_bytes - 1, 0.0)
            found += _over(rate * demand.block_reads, tier.reads_per_s)
            found += _over(rate * demand.bus_bytes, tier.read_bytes_per_s)
        return found

    def waits(self, demands: Sequence[TierDemand], which: str = MEAN) -> Busy:
        """Return how long a query waits for each tier but the native one."""
        parts = dict[str, float]()
        away = 0.0
        for tier, demand in zip(self.tiers, demands, strict=True):
            if tier.name == self.native:
                continue
            parts[tier.name] = self.wait(tier, demand, which).seconds
            away += demand.bus_bytes
        if self.away_s_per_byte:
            parts["host link"] = away * self.away_s_per_byte
        return Busy(parts)

    def wait(self, tier: Tier, demand: TierDemand, which: str = MEAN) -> Busy:
        """Return how long a query waits for each part of a tier."""
        load = self.queries_per_s * demand.block_reads
        depth, kind = self._depth(tier), self._kind(tier, which)
        return tier_models.demand_time(tier, demand, depth, load, kind)

    def _depth(self, tier: Tier) -> float:
        drives = math.isfinite(tier.knee)
        return self.in_flight * tier.count if drives else _ALL_AT_ONCE

    def _kind(self, tier: Tier, which: str) -> str:
        """DRAM's and the device's own reads are no requests with a tail of theirs."""
        return MEAN if tier.name in {HBM, DRAM} else which

    def beside_s(self, native_share: float) -> float:
        """Return how long what runs beside the reads of tiers takes.

        Args:
            native_share: Of the bytes that are looked up, those in the native tier.

        """
        return self.dense_s + self.lookup_s * native_share if self.overlap else 0.0

    def exposed_s(self, waits: Busy, native_share: float) -> float:
        """Return the part of the waits that nothing hides."""
        return tier_models.exposed_s(waits.seconds, (self.beside_s(native_share),))

    def lateness(self, demands: Sequence[TierDemand], native_share: float) -> float:
        """Return by which share a query is later than its target; 0 if it is not."""
        if self.target is None:
            return 0.0
        waits = self.waits(demands, self.target.which)
        seconds = self.base_s + self.exposed_s(waits, native_share)
        return max(seconds / self.target.seconds - 1, 0.0)

    def rates(self, demands: Sequence[TierDemand], native_share: float) -> Rates:
        """Return the queries a second that each part of a host allows."""
        service = self.service
        demand = QueryDemand(compute_s=service.compute_s, dram_bytes=service.dram_bytes)
        rates = tier_models.queries_per_host(demand, service.dram_bytes_per_s)
        found = dict(rates.parts)
        for tier, asked in zip(self.tiers, demands, strict=True):
            if tier.name == self.native or not asked.block_reads:
                continue
            # How far a host goes with a tier: within its share, and in time.
            share = DRIVE_SHARE if math.isfinite(tier.knee) else 1.0
            if self.target is None:
                plan = ReadPlan(tier=tier, share=share)
            else:
                left_s = self.target.seconds - self.base_s + self.beside_s(native_share)
                turns = max(math.ceil(asked.most_reads / self._depth(tier)), 1)
                which = self._kind(tier, self.target.which)
                plan = ReadPlan(
                    tier=tier, share=share, within_s=left_s / turns, which=which
                )
            demand = QueryDemand(
                block_reads=asked.block_reads, bus_bytes=asked.bus_bytes
            )
            parts = tier_models.queries_per_host(demand, plan=plan).parts
            found |= {f"{tier.name} {name}": rate for name, rate in parts.items()}
        return Rates(found)

    def uses(self, demands: Sequence[TierDemand]) -> list[TierUse]:
        """Return the use of each tier by one host at its load."""
        pairs = zip(self.tiers, demands, strict=True)
        return [tier_models.demand_use(t, d, self.queries_per_s) for t, d in pairs]

    @property
    def drives(self) -> frozenset[str]:
        """Names of the tiers that take commands: those whose queues slow them."""
        return frozenset(t.name for t in self.tiers if math.isfinite(t.knee))

    def has_watts(self, tier: Tier) -> bool:
        """Whether the watts of a tier are known, if it has any beside its host's."""
        return tier.name in {HBM, DRAM} or tier.read_watts is not None

    def tier_watts(self, use: TierUse) -> float | None:
        """Return the watts of a tier beside its host; None for the host's memory."""
        if use.tier.name in {HBM, DRAM}:
            return None
        return use.watts if use.used_bytes else 0.0

    def host_watts(self, uses: Sequence[TierUse]) -> float:
        """Return the watts of a host with the tiers that it uses."""
        if self.service.watts is None:
            msg = "the watts of a host are not known"
            raise PerfcError(msg)
        drawn = [self.tier_watts(use) for use in uses]
        return self.service.watts + math.fsum(watts or 0.0 for watts in drawn)

    def host_usd(self, demands: Sequence[TierDemand]) -> float:
        """Return the price of the memory that tables take in one host."""
        parts: list[float] = []
        for tier, demand in zip(self.tiers, demands, strict=True):
            if tier.usd_per_byte is None and demand.stored_bytes:
                msg = (
                    f"tier {tier.name}: its price is not known; add usd_per_gb to its "
                    "sheet"
                )
                raise PerfcError(msg)
            parts.append(demand.stored_bytes * (tier.usd_per_byte or 0.0))
        return math.fsum(parts)

    def hosts(self, demands: Sequence[TierDemand], native_share: float) -> int:
        """Return how many hosts serve the fleet's load; at least one."""
        rate = self.rates(demands, native_share).per_s
        found = tier_models.hosts_for(self.fleet_per_s, min(rate, _ALL_AT_ONCE))
        return max(found, 1)

    def score(
        self, demands: Sequence[TierDemand], native_share: float
    ) -> tuple[float, float]:
        """Return the excess of a placement, and how much of the objective it has.

        Args:
            demands: Of each tier.
            native_share: Of the bytes that are looked up, those in the native tier.

        Returns:
            A sum of shares, 0 of a placement that can be; and the score, infinite of
            one that cannot.

        """
        if wrong := self.excess(demands):
            return wrong, math.inf
        if wrong := self.lateness(demands, native_share):
            return wrong, math.inf
        waits = self.waits(demands)
        time_s = self.base_s + self.exposed_s(waits, native_share)
        found = time_s
        if self.objective != TIME:
            found = self.hosts(demands, native_share) * self._host_amount(demands)
        wait_s = waits.seconds
        return 0.0, found * (1 + _TIE * wait_s / (wait_s + self.base_s))

    def _host_amount(self, demands: Sequence[TierDemand]) -> float:
        if self.objective == COST:
            return self.host_usd(demands)
        return self.host_watts(self.uses(demands))


def _over(asked: float, most: float) -> float:
    """Return by which share more is asked for than is less than all; 0 if not."""
    return asked / most - 1 + _TIE if asked >= most else 0.0
