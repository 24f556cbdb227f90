"""What a table costs in a tier, for one query: the terms that add up over tables.

Of n lookups a share comes pooled from a cache of bags, of the others a share h from a
cache of rows; the rest are read. A read of a row takes `blocks_per_row` reads of the
medium, and whole units of the bus. `use.py` says what they add up to.
"""

from __future__ import annotations

import attrs

from perfc.costmodels import locality
from perfc.costmodels.locality import Popularity, Uniform
from perfc.costmodels.machine import Tier
from perfc.costmodels.tiers.blocks import blocks_per_row, stored_bytes
from perfc.ir import PerfcError


@attrs.frozen(kw_only=True)
class TieredTable:
    """A table that is looked up by queries, wherever it lies."""

    name: str
    rows: int
    row_bytes: int
    """With what lies beside a row: scales, optimizer states."""
    lookups: float
    """Rows that a query looks up: of an item table those of all candidates."""
    pooling: float = 1.0
    """Rows of a bag; matters where a bag holds none twice."""
    popularity: Popularity = attrs.field(factory=Uniform)
    padded: bool = False
    """Whether each row begins at a block of the medium."""

    @property
    def nbytes(self) -> int:
        """Bytes of all rows, back to back."""
        return self.rows * self.row_bytes


@attrs.frozen(kw_only=True)
class TableCost:
    """What a table asks of a tier. Amounts are those of one query."""

    table: str
    tier: str
    stored_bytes: int
    """Capacity of the tier that it takes."""
    lookups: float
    hits: float
    """Rows that caches give, pooled or not."""
    reads: float
    """Rows that the tier gives; with `hits` all lookups."""
    blocks_per_row: float
    amplification: float
    block_reads: float
    """Reads of the medium."""
    media_bytes: float
    bus_bytes: float
    row_bytes: float
    """Bytes of the rows that are read."""

    @property
    def density(self) -> float:
        """Bytes that are read a query over bytes stored: the densest go first."""
        return self.row_bytes / self.stored_bytes


def table_cost(
    table: TieredTable, tier: Tier, cached: float = 0.0, pooled_share: float = 0.0
) -> TableCost:
    """Return the cost of a table in a tier.

    Args:
        table: The table.
        tier: Where it lies.
        cached: Rows of it that an LRU cache in a faster tier holds.
        pooled_share: Share of its lookups that a cache of pooled rows saves.

    """
    if table.rows < 1 or not 0 <= pooled_share <= 1 or table.lookups < 0:
        msg = (
            f"table {table.name}: expected rows, lookups and a pooled share from 0 to "
            f"1, found {table.rows}, {table.lookups:g} and {pooled_share:g}"
        )
        raise PerfcError(msg)
    missed = locality.lru_miss_share(table.popularity, table.rows, cached)
    reads = table.lookups * (1 - pooled_share) * missed
    block, unit = tier.granularity_bytes, tier.bus_granularity_bytes
    blocks = blocks_per_row(table.row_bytes, block, padded=table.padded)
    units = blocks_per_row(table.row_bytes, unit, padded=table.padded)
    return TableCost(
        table=table.name,
        tier=tier.name,
        stored_bytes=stored_bytes(
            table.rows, table.row_bytes, block, padded=table.padded
        ),
        lookups=table.lookups,
        hits=table.lookups - reads,
        reads=reads,
        blocks_per_row=blocks,
        amplification=blocks * block / table.row_bytes,
        block_reads=reads * blocks,
        media_bytes=reads * blocks * block,
        bus_bytes=reads * units * unit,
        row_bytes=reads * table.row_bytes,
    )
