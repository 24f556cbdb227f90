"""What the tables of a tier ask of it together, and how long a query waits for it.

All reads of a query are independent of each other, so that its time is that of the
tier's slowest part:

    max(ceil(reads of the largest table / q) latency, reads / X_max, bytes / bandwidth)

with q reads in flight, and the latency of a drive under load (`drive.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import attrs

from perfc.costmodels.machine import Tier
from perfc.costmodels.tiers.drive import MEAN, check_load, latency_s
from perfc.costmodels.tiers.limits import Busy
from perfc.costmodels.tiers.table import TableCost
from perfc.ir import PerfcError
from perfc.ir.support import format_bytes


@attrs.frozen(kw_only=True)
class TierUse:
    """A tier under so many queries a second."""

    tier: Tier
    used_bytes: int
    reads_per_s: float
    """Reads of the medium."""
    read_bytes_per_s: float
    """Over its bus."""
    latency_s: float
    """Mean of one read."""
    in_flight: float
    """Reads at any time."""

    @property
    def utilisation(self) -> float:
        """Share of the reads, or of the bandwidth, that it has; the larger."""
        tier = self.tier
        return max(
            self.reads_per_s / tier.reads_per_s,
            self.read_bytes_per_s / tier.read_bytes_per_s,
        )

    @property
    def watts(self) -> float:
        """Watts that it draws: idle, and its utilisation's share of those above."""
        read, idle = tier_watts(self.tier)
        return idle + (read - idle) * self.utilisation


def tier_watts(tier: Tier) -> tuple[float, float]:
    """Return the watts of a tier: saturated, idle."""
    if tier.read_watts is None:
        msg = f"tier {tier.name}: watts are not known; add power_read_w to its sheet"
        raise PerfcError(msg)
    idle = tier.read_watts if tier.idle_watts is None else tier.idle_watts
    return tier.read_watts, idle


@attrs.frozen(kw_only=True)
class TierDemand:
    """What the tables of a tier ask of it together, for one query."""

    stored_bytes: float = 0.0
    """Capacity that they take."""
    block_reads: float = 0.0
    """Reads of the medium."""
    bus_bytes: float = 0.0
    most_reads: float = 0.0
    """Reads of the medium of the table that has most."""

    @classmethod
    def of(cls, costs: Iterable[TableCost]) -> TierDemand:
        """Add up tables."""
        listed = list(costs)
        return cls(
            stored_bytes=sum(cost.stored_bytes for cost in listed),
            block_reads=math.fsum(cost.block_reads for cost in listed),
            bus_bytes=math.fsum(cost.bus_bytes for cost in listed),
            most_reads=max((cost.block_reads for cost in listed), default=0.0),
        )


def tier_use(tier: Tier, costs: Iterable[TableCost], queries_per_s: float) -> TierUse:
    """Return the use of a tier by its tables, as `demand_use` of their sum.

    Args:
        tier: The tier.
        costs: Of each of its tables there.
        queries_per_s: On one host.

    """
    return demand_use(tier, TierDemand.of(costs), queries_per_s)


def demand_use(tier: Tier, demand: TierDemand, queries_per_s: float) -> TierUse:
    """Return the use of a tier by what is asked of it for each query."""
    check_capacity(tier, demand.stored_bytes)
    reads = queries_per_s * demand.block_reads
    moved = queries_per_s * demand.bus_bytes
    check_load(tier, reads)
    if moved >= tier.read_bytes_per_s:
        msg = (
            f"tier {tier.name}: {moved / 1e9:.4g} GB/s asked for, expected less than "
            f"{tier.read_bytes_per_s / 1e9:.4g} GB/s, which is all that it can do"
        )
        raise PerfcError(msg)
    latency = latency_s(tier, reads)
    return TierUse(
        tier=tier,
        used_bytes=int(demand.stored_bytes),
        reads_per_s=reads,
        read_bytes_per_s=moved,
        latency_s=latency,
        in_flight=reads * latency,
    )


def query_time(
    tier: Tier,
    costs: Iterable[TableCost],
    in_flight: float,
    load: float = 0.0,
    which: str = MEAN,
) -> Busy:
    """Return how long a query waits for a tier.

    Args:
        tier: The tier.
        costs: Of each of its tables there, for that query.
        in_flight: Reads that the query has under way at a time, at least 1.
        load: Reads a second of all queries.
        which: Latency that counts: `mean` or `p99`.

    """
    return demand_time(tier, TierDemand.of(costs), in_flight, load, which)


def demand_time(
    tier: Tier,
    demand: TierDemand,
    in_flight: float,
    load: float = 0.0,
    which: str = MEAN,
) -> Busy:
    """Return how long a query waits for a tier, as `query_time` of added up tables."""
    if in_flight < 1:
        msg = f"{in_flight:g} reads in flight: expected at least 1"
        raise PerfcError(msg)
    turns = math.ceil(demand.most_reads / in_flight)
    return Busy(
        {
            "latency": turns * latency_s(tier, load, which),
            "reads": demand.block_reads / tier.reads_per_s,
            "bandwidth": demand.bus_bytes / tier.read_bytes_per_s,
        }
    )


def exposed_s(tier_s: float, beside_s: Sequence[float] = ()) -> float:
    """Return the part of a tier's time that nothing hides.

    Args:
        tier_s: Time of the tier, in seconds.
        beside_s: Of what runs at the same time, one after another: item tables, dense
            layers; nothing if they wait for the tier.

    """
    return max(0.0, tier_s - math.fsum(beside_s))


def check_capacity(tier: Tier, nbytes: float) -> None:
    """Refuse what does not fit."""
    if nbytes > tier.capacity_bytes:
        missing = format_bytes(nbytes - tier.capacity_bytes)
        msg = (
            f"tier {tier.name}: {format_bytes(nbytes)} do not fit into its "
            f"{format_bytes(tier.capacity_bytes)}; {missing} are missing"
        )
        raise PerfcError(msg)


def fastest_that_fits(nbytes: float, tiers: Sequence[Tier]) -> Tier:
    """Return the first of tiers, fastest first, that has room."""
    for tier in tiers:
        if nbytes <= tier.capacity_bytes:
            return tier
    largest = max((tier.capacity_bytes for tier in tiers), default=0.0)
    names = ", ".join(tier.name for tier in tiers) or "no tier"
    msg = (
        f"{format_bytes(nbytes)} fit nowhere ({names}): "
        f"{format_bytes(nbytes - largest)} are missing"
    )
    raise PerfcError(msg)
