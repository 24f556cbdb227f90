"""Training on tables in a tier: rows are brought in, updated, and written back.

The rules are those of FBGEMM's UVM caching (`embedding/tiers.py`), with the tier in the
place of the host link: before a lookup the rows of its batch that the cache lacks are
read, and those that they push out are written back, changed or not. Rows that find no
place are read by the lookup, read again by the update, and written. Optimizer states
lie beside their rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from perfc.costmodels import locality
from perfc.costmodels.machine import Tier
from perfc.costmodels.tiers.blocks import blocks_per_row
from perfc.costmodels.tiers.limits import Busy
from perfc.costmodels.tiers.table import TieredTable
from perfc.ir import PerfcError


@attrs.frozen(kw_only=True)
class TrainingTraffic:
    """What a batch of a table moves between a tier and what caches its rows."""

    block_reads: float
    block_writes: float
    read_bytes: float
    """Over the bus."""
    written_bytes: float
    rows_read: float = 0.0
    rows_written: float = 0.0

    @property
    def only_read(self) -> TrainingTraffic:
        """What is read of it."""
        nothing = {"block_writes": 0.0, "written_bytes": 0.0, "rows_written": 0.0}
        return attrs.evolve(self, **nothing)

    @property
    def only_written(self) -> TrainingTraffic:
        """What is written of it."""
        nothing = {"block_reads": 0.0, "read_bytes": 0.0, "rows_read": 0.0}
        return attrs.evolve(self, **nothing)


def training_traffic(
    table: TieredTable, tier: Tier, batch: float, cached: float = 0.0
) -> TrainingTraffic:
    """Return the traffic of a batch: that of its lookup and that of its update.

    Args:
        table: Its lookups are those of a sample, its row bytes with optimizer states.
        tier: Where it lies.
        batch: Samples.
        cached: Rows of it that a cache holds, filled batch by batch.

    """
    brought, past = _rows_moved(table, batch, cached)
    return _traffic(table, tier, read=brought + 2 * past, written=brought + past)


def lookup_traffic(
    table: TieredTable, tier: Tier, batch: float, cached: float = 0.0
) -> TrainingTraffic:
    """Return the part that is before a lookup: as many rows leave as are brought in."""
    brought, past = _rows_moved(table, batch, cached)
    return _traffic(table, tier, read=brought + past, written=brought)


def update_traffic(
    table: TieredTable, tier: Tier, batch: float, cached: float = 0.0
) -> TrainingTraffic:
    """Return the part of an update: rows without a place, read again and written."""
    _, past = _rows_moved(table, batch, cached)
    return _traffic(table, tier, read=past, written=past)


def _rows_moved(table: TieredTable, batch: float, cached: float) -> tuple[float, float]:
    curve = locality.row_curve(table.popularity, table.rows, table.pooling)
    held = min(cached, float(table.rows))
    filled = locality.batch_fill(curve, held, table.lookups * batch)
    past = min(filled.straight, filled.fetched)
    return filled.fetched - past, past


def _traffic(
    table: TieredTable, tier: Tier, *, read: float, written: float
) -> TrainingTraffic:
    block, unit = tier.granularity_bytes, tier.bus_granularity_bytes
    blocks, units = (
        blocks_per_row(table.row_bytes, size, padded=table.padded)
        for size in (block, unit)
    )
    return TrainingTraffic(
        block_reads=read * blocks,
        block_writes=written * blocks,
        read_bytes=read * units * unit,
        written_bytes=written * units * unit,
        rows_read=read,
        rows_written=written,
    )


def training_time(tier: Tier, traffic: Sequence[TrainingTraffic]) -> Busy:
    """Return how long a batch keeps a tier busy.

    Reads and writes share the medium's commands; its bus has a rate for each.
    """
    reads = math.fsum(each.block_reads for each in traffic)
    writes = math.fsum(each.block_writes for each in traffic)
    return Busy(
        {
            "commands": reads / tier.reads_per_s + writes / tier.writes_per_s,
            "reading": math.fsum(t.read_bytes for t in traffic) / tier.read_bytes_per_s,
            "writing": math.fsum(t.written_bytes for t in traffic)
            / tier.write_bytes_per_s,
        }
    )


def nodes_needed(nbytes: float, tiers: Sequence[Tier]) -> int:
    """Return how many nodes hold so many bytes in all of their tiers together."""
    capacity = math.fsum(tier.capacity_bytes for tier in tiers)
    if capacity <= 0:
        msg = "no tier holds anything: expected one at least"
        raise PerfcError(msg)
    return math.ceil(nbytes / capacity)
