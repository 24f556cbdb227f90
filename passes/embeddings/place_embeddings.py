"""The pass `place-embeddings`."""

from __future__ import annotations

from typing import ClassVar

import attrs

from perfc.costmodels import UVM_CACHING
from perfc.costmodels.embedding import HOST, REMOTE, RPC_US
from perfc.ir import AnyKey, AttrValue, Program, Record, UsageError
from perfc.passes import graphs
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.embeddings.table_tiers import TIERS, USUAL_CACHE, in_tier, is_share
from perfc.passes.facts import ELEMENTS, TYPED

_SERVER = "2s-skylake"
"""What a parameter server is if nothing is said: a CPU server of the study of Zion."""

_OF_SERVERS = ("servers", "server", "trainers", "rpc_us", "sync")


@attrs.frozen
class PlaceEmbeddings(Transform):
    """Put embedding tables elsewhere than into device memory.

    As FBGEMM's tables that are `fused_uvm`, whose rows kernels read over the host link,
    and `fused_uvm_caching`, of which a share of the rows is held in device memory.

    In another tier of memory, by its name: rows are read into such a cache before a
    lookup, and written back in training. The tiers of a target are those of its sheet,
    `dram` where that says what its host has, and the memories that `perfc targets`
    lists. With `host` the cores of the node look up and update, and pooled rows cross
    the link; with `remote` parameter servers do, over the network. What is on its way
    runs beside the device, which waits for it where it reads it.

    Attributes:
        tier: `hbm`, `uvm`, `uvm-caching`, a tier of the target, `host` or `remote`.
        cache: Share of the rows that device memory holds (`cache_load_factor`), of
            `uvm-caching` and of tiers of memory.
        table: Which: its parameter, with or without `.weight`; all of them if empty.
        rows: Only tables of so many rows or more.
        count: Drives or modules of the tier: so many times what the target has.
        prefetch: Whether rows are brought for the step after, so that no step waits
            for its own: of tiers of memory and `host`.
        servers: Of `remote`: how many servers share the tables.
        server: Of `remote`: the target that each of them is.
        trainers: Of `remote`: how many work on batches of their own, without each
            other, and ask the servers at once; the ranks if nothing is said.
        rpc_us: Of `remote`: what a request takes, without its bytes.
        sync: Of `remote`: whether a step waits for its own rows; by default it works
            on rows that were asked for before.

    """

    name: ClassVar[str] = "place-embeddings"
    phase: ClassVar[Phase] = Phase.FORWARD
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})
    preserves: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    tier: str = UVM_CACHING
    cache: float = USUAL_CACHE
    table: str = ""
    rows: int = 0
    count: int = 1
    prefetch: bool = False
    servers: int = 1
    server: str = _SERVER
    trainers: int = 0
    rpc_us: float = RPC_US
    sync: bool = False

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        if not self.tier:
            msg = f"tier of {self.name} is empty: expected {', '.join(TIERS)}, host, "
            msg += "remote or a tier of the target"
            raise UsageError(msg)
        if not is_share(self.cache):
            msg = f"cache={self.cache:g} of {self.name}: expected more than 0, up to 1"
            raise UsageError(msg)
        if self.rows < 0:
            msg = f"rows={self.rows} of {self.name}: expected 0 or more"
            raise UsageError(msg)
        for option, number in (("count", self.count), ("servers", self.servers)):
            if number < 1:
                msg = f"{option}={number} of {self.name}: expected 1 or more"
                raise UsageError(msg)
        if self.trainers < 0:
            msg = f"trainers={self.trainers} of {self.name}: expected 1 or more"
            raise UsageError(msg)
        if not 0 <= self.rpc_us < _MOST_US:
            msg = f"rpc_us={self.rpc_us:g} of {self.name}: expected 0 to {_MOST_US:g}"
            raise UsageError(msg)
        self._check_meant()

    def _check_meant(self) -> None:
        """Refuse options that mean nothing to the tier, rather than leave them out."""
        without: tuple[str, ...] = ()
        if self.tier != REMOTE:
            without = _OF_SERVERS
        if self.tier in (*TIERS, HOST, REMOTE):
            without += ("count",)
        if self.tier in (*TIERS, REMOTE):
            without += ("prefetch",)
        fields = attrs.fields_dict(type(self))
        for option in without:
            if getattr(self, option) != fields[option].default:
                msg = f"{option} of {self.name} means nothing to tier={self.tier}"
                raise UsageError(msg)

    def run(self, program: Program, ctx: PassContext) -> None:
        """Write it down in the lookups of every op graph."""
        nodes = graphs.table_lookups(program)
        wanted = ""
        if self.table:
            wanted = graphs.require_table(
                program, self.table, graphs.table_names(nodes)
            )
        more = self._told()

        def placed(name: str, table: Record) -> Record:
            if (wanted and name != wanted) or table.integer("rows") < self.rows:
                return table
            return in_tier(table, self.tier, self.cache, **more)

        graphs.change_tables(nodes, placed)

    def _told(self) -> dict[str, AttrValue]:
        """Return the fields that tables get besides their tier."""
        if self.tier in TIERS:
            return {}
        if self.tier == REMOTE:
            asking = {"trainers": self.trainers} if self.trainers else {}
            return {
                **asking,
                "servers": self.servers,
                "server": self.server,
                "rpc_us": self.rpc_us,
                "ahead": not self.sync,
            }
        count: dict[str, AttrValue] = {"count": self.count} if self.count > 1 else {}
        return {**count, "ahead": True} if self.prefetch else count


_MOST_US = 1e9
