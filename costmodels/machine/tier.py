"""Memories that tables may lie in, as data: the numbers of a sheet's tiers."""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

from perfc.ir import UsageError


def _texts(value: Mapping[str, str]) -> Mapping[str, str]:
    return dict(value)


@attrs.frozen(kw_only=True)
class Tier:
    """Drives or modules of one kind, all of a node's together, in SI units."""

    name: str
    """What the sheet calls it: `optane`."""
    device: str = ""
    """Name of the sheet of one of them; empty where the numbers stand in the sheet."""
    count: int = 1
    """Drives or modules; every other number is of all of them together, but for the
    granularities and latencies, which are those of one."""
    capacity_bytes: float
    granularity_bytes: int
    """Least that the medium reads."""
    bus_granularity_bytes: int
    """Least that crosses the bus; divides `granularity_bytes`."""
    reads_per_s: float
    """Reads of `granularity_bytes` when saturated; of memories without such a limit
    what their bandwidth has room for."""
    writes_per_s: float
    """Writes of `granularity_bytes` when saturated."""
    read_latency_s: float
    """Mean of one read, idle."""
    read_latency_p99_s: float | None = None
    """What 99 of 100 reads take at most, idle; None where nobody says it."""
    read_bytes_per_s: float
    write_bytes_per_s: float
    knee: float = math.inf
    """Exponent k of `tiers/drive.py`: the smaller, the earlier a queue slows it."""
    cache_bytes: float = 0.0
    """DRAM of the host that holds rows of this tier."""
    read_watts: float | None = None
    """While it is read as fast as it can be; None where nobody says it."""
    idle_watts: float | None = None
    writes_per_day: float | None = None
    """How often a day its whole capacity may be written; None: without limit."""
    usd_per_byte: float | None = None
    sources: Mapping[str, str] = attrs.field(
        factory=dict[str, str], converter=_texts, eq=False, repr=False
    )
    """Citation by key of the sheet."""

    def times(self, count: int) -> Tier:
        """Return so many of it side by side."""
        return self.with_count(self.count * count)

    def with_count(self, count: int) -> Tier:
        """Return a tier with so many drives or modules in all."""
        if count < 1:
            msg = f"tier {self.name}: expected at least one of it, found {count}"
            raise UsageError(msg)
        more = count / self.count
        watts = self.read_watts, self.idle_watts
        read, idle = (None if each is None else each * more for each in watts)
        return attrs.evolve(
            self,
            count=count,
            capacity_bytes=self.capacity_bytes * more,
            reads_per_s=self.reads_per_s * more,
            writes_per_s=self.writes_per_s * more,
            read_bytes_per_s=self.read_bytes_per_s * more,
            write_bytes_per_s=self.write_bytes_per_s * more,
            read_watts=read,
            idle_watts=idle,
        )

    @property
    def assumed(self) -> tuple[str, ...]:
        """Keys of numbers that nobody has printed or measured, as their source says."""
        return tuple(k for k, s in self.sources.items() if s.startswith("assumed"))
