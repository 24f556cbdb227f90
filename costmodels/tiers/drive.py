"""A drive under load: how its queue slows it.

With q reads in flight, each of which takes `lat` on an idle drive,

    X(q) = ((q / lat) ** -k + X_max ** -k) ** (-1 / k)

reads a second end, and one takes q / X (Little's law). Where the load X is given,

    latency = lat (1 - (X / X_max) ** k) ** (-1 / k)

k, the tier's `knee`, says how sharp the bend is: 1.4 fits a NAND drive, whose dies
collide early, 4 and more one of 3D XPoint (fitted to AnandTech's measured IOPS, see
`benchmarks/published/ssd_reads.py`); memory without commands has none, and gives the
smaller of the two rates.
"""

from __future__ import annotations

from perfc.costmodels.machine import Tier
from perfc.ir import PerfcError

MEAN, P99 = "mean", "p99"


def reads_per_s(tier: Tier, in_flight: float) -> float:
    """Return how many reads a second end with so many in flight at any time."""
    if in_flight < 0:
        msg = f"{in_flight:g} reads in flight: expected at least 0"
        raise PerfcError(msg)
    wanted, most = in_flight / tier.read_latency_s, tier.reads_per_s
    less, more = min(wanted, most), max(wanted, most)
    return less * float((1 + (less / more) ** tier.knee) ** (-1 / tier.knee))


def idle_latency_s(tier: Tier, which: str = MEAN) -> float:
    """Return the latency of a read of an idle tier, in seconds.

    Args:
        tier: The tier.
        which: `mean`, or `p99`, which 99 of 100 reads are within.

    """
    if which == MEAN:
        return tier.read_latency_s
    if tier.read_latency_p99_s is None:
        msg = (
            f"tier {tier.name} has no latency at p99: add read_latency_p99_us to its "
            "sheet, or ask for the mean"
        )
        raise PerfcError(msg)
    return tier.read_latency_p99_s


def latency_s(tier: Tier, load: float, which: str = MEAN) -> float:
    """Return the latency of a read where so many a second are asked for, in seconds.

    The p99 is taken to grow as the mean does.
    """
    check_load(tier, load)
    kept = 1 - (load / tier.reads_per_s) ** tier.knee
    return idle_latency_s(tier, which) * float(kept ** (-1 / tier.knee))


def in_flight(tier: Tier, load: float) -> float:
    """Return how many reads are in flight at a load: load times latency."""
    return load * latency_s(tier, load)


def load_within(tier: Tier, most_s: float, which: str = MEAN) -> float:
    """Return the most reads a second whose latency is within a target.

    0 where an idle tier is slower than that.
    """
    idle = idle_latency_s(tier, which)
    if idle >= most_s:
        return 0.0
    share = (1 - (idle / most_s) ** tier.knee) ** (1 / tier.knee)
    return tier.reads_per_s * float(share)


def check_load(tier: Tier, load: float) -> None:
    """Refuse a load that a tier cannot do."""
    if not 0 <= load < tier.reads_per_s:
        msg = (
            f"tier {tier.name}: {load:,.0f} reads a second asked for, expected fewer "
            f"than {tier.reads_per_s:,.0f}, which is all that it can do"
        )
        raise PerfcError(msg)
