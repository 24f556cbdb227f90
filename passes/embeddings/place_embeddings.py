"""The pass `place-embeddings`."""

from __future__ import annotations

from typing import ClassVar

import attrs

from perfc.costmodels import UVM_CACHING
from perfc.ir import AnyKey, Program, Record, UsageError
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.embeddings.table_tiers import TIERS, USUAL_CACHE, in_tier, is_share
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.graphs import (
    change_tables,
    require_table,
    table_lookups,
    table_names,
)


@attrs.frozen
class PlaceEmbeddings(Transform):
    """Put embedding tables into host memory, with or without a cache on the device.

    As FBGEMM's tables that are `fused_uvm`, whose rows kernels read over the host link,
    and `fused_uvm_caching`, of which a share of the rows is held in device memory.

    Attributes:
        tier: `hbm`, `uvm` or `uvm-caching`.
        cache: Share of the rows that device memory holds (`cache_load_factor`).
        table: Which: its parameter, with or without `.weight`; all of them if empty.
        rows: Only tables of so many rows or more.

    Raises:
        UsageError: an option is out of range, or no lookup has this table.

    """

    name: ClassVar[str] = "place-embeddings"
    phase: ClassVar[Phase] = Phase.FORWARD
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})
    preserves: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    tier: str = UVM_CACHING
    cache: float = USUAL_CACHE
    table: str = ""
    rows: int = 0

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        if self.tier not in TIERS:
            msg = f"tier={self.tier!r} of {self.name}: expected {', '.join(TIERS)}"
            raise UsageError(msg)
        if not is_share(self.cache):
            msg = f"cache={self.cache:g} of {self.name}: expected more than 0, up to 1"
            raise UsageError(msg)
        if self.rows < 0:
            msg = f"rows={self.rows} of {self.name}: expected 0 or more"
            raise UsageError(msg)

    def run(self, program: Program, ctx: PassContext) -> None:
        """Write it down in the lookups of every op graph."""
        nodes = table_lookups(program)
        wanted = ""
        if self.table:
            wanted = require_table(program, self.table, table_names(nodes))

        def placed(name: str, table: Record) -> Record:
            if (wanted and name != wanted) or table.integer("rows") < self.rows:
                return table
            return in_tier(table, self.tier, self.cache)

        change_tables(nodes, placed)
