"""Lookups in tables that no kernel reads: what others do for them, and when.

Rows of a tier of memory go through a cache in device memory, as FBGEMM's SSD tables:
the rows that a batch lacks are found, read, and copied in before the lookup, and others
copied out and written. The host's cores, or servers, look up the bags of their tables
themselves: pooled rows are copied in before who reads them, gradients of bags out.

What is on its way runs on streams of its own, which the host's thread issues. With
`ahead` it is that of the step before or after, so that nothing of this step waits for
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from perfc.costmodels import UVM_CACHING
from perfc.costmodels.embedding import DRAM, HOST, REMOTE, UVM
from perfc.ir import AttrValue, DType, Record, TaskKind, Work
from perfc.passes.lowering.eager import reductions
from perfc.passes.lowering.eager.embedding.rows import Lookup
from perfc.passes.lowering.eager.site import (
    MEMCPY,
    Launch,
    Settings,
    Site,
    Waits,
    vector_launch,
)

_NEAR = frozenset({"", UVM, UVM_CACHING})
_OF_A_CPU = frozenset({HOST, DRAM})
_PLACES = frozenset(
    {"tier", "cache", "count", "servers", "server", "trainers", "rpc_us", "ahead"}
)
_NOTHING = Work(0, 0, 0)
"""Work that is none of the device's."""

H2D, D2H = "h2d", "d2h"


def is_far(table: Record, *, on_cpu: bool) -> bool:
    """Whether no kernel reads a table where it lies; a CPU reads its own memory."""
    tier = table.get("tier") or ""
    return tier not in _NEAR and not (on_cpu and tier in _OF_A_CPU)


def is_looked_up_elsewhere(table: Record, *, on_cpu: bool) -> bool:
    """Whether others look a table up, so that its indices stay where they are."""
    tier = table.get("tier")
    return tier == REMOTE or (tier == HOST and not on_cpu)


@attrs.frozen
class FarLookup:
    """The tables of a lookup by where they lie.

    Attributes:
        lookup: All of them.
        settings: Of the site.
        near: Those that kernels look up, cached ones among them.
        cached: Those of tiers of memory.
        host: Those that the host's cores look up.
        remote: Those of servers.

    """

    lookup: Lookup
    settings: Settings
    near: tuple[Record, ...]
    cached: tuple[Record, ...]
    host: tuple[Record, ...]
    remote: tuple[Record, ...]

    @classmethod
    def of(cls, site: Site, lookup: Lookup) -> FarLookup | None:
        """Return the lookup of a site, or None if kernels read all of its tables."""
        on_cpu = site.settings.on_cpu
        far = [table for table in lookup.tables if is_far(table, on_cpu=on_cpu)]
        if not far:
            return None
        cached = tuple(t for t in far if t.get("tier") not in (HOST, REMOTE))
        near = (
            _cached(t) if t in cached else t
            for t in lookup.tables
            if not is_looked_up_elsewhere(t, on_cpu=on_cpu)
        )
        host = tuple(t for t in far if t.get("tier") == HOST)
        remote = tuple(t for t in far if t.get("tier") == REMOTE)
        return cls(lookup, site.settings, tuple(near), cached, host, remote)

    def near_work(self, work: Work) -> Work:
        """Return the part of the work of all tables that kernels do, by columns."""
        near, every = (
            sum(table.integer("dim") for table in tables)
            for tables in (self.near, self.lookup.tables)
        )
        return Work(
            work.flops * near // every,
            work.bytes_read * near // every,
            work.bytes_written * near // every,
        )

    def before(self, dtype: DType) -> Iterator[Launch]:
        """Yield the launches before kernels look up."""
        for tables in _alike(self.cached):
            yield from self._uncached(tables)
            yield from self._filled(dtype, tables, "forward", awaited=True)

    def beside(self, dtype: DType, size: int) -> Iterator[Launch]:
        """Yield the launches of others for the lookup.

        Args:
            dtype: Of the tables.
            size: Bytes of one element of a pooled row.

        """
        pooled = [(tables, self._pooled(tables, size)) for tables in self._elsewhere()]
        for tables, nbytes in pooled:
            ahead = self._ahead(tables)
            if tables[0].get("tier") == HOST:
                yield self._looked_up(dtype, tables, "forward", Waits.NOTHING)
            else:
                yield from self._asked(dtype, tables, nbytes)
            if not self.settings.on_cpu:
                copy = self._copy(dtype, nbytes, H2D, Waits.PREVIOUS, tables)
                yield attrs.evolve(copy, awaited=not ahead)

    def updated(self, dtype: DType, size: int) -> Iterator[Launch]:
        """Yield those of others for the update, once gradients of bags are known."""
        for tables in _alike(self.cached):
            yield from self._filled(dtype, tables, "backward", awaited=False)
        for tables in self._elsewhere():
            nbytes, first = self._pooled(tables, size), Waits.COMPUTE
            if not self.settings.on_cpu:
                yield self._copy(dtype, nbytes, D2H, first, tables)
                first = Waits.PREVIOUS
            if tables[0].get("tier") == HOST:
                yield self._looked_up(dtype, tables, "backward", first)
                continue
            yield self._transfer(dtype, nbytes, "send", first, tables)
            yield self._looked_up(dtype, tables, "backward", Waits.PREVIOUS)

    def _elsewhere(self) -> Iterator[tuple[Record, ...]]:
        yield from _alike(self.host)
        yield from _alike(self.remote)

    def _ahead(self, tables: Sequence[Record]) -> bool:
        return bool(tables[0].get("ahead"))

    def _pooled(self, tables: Sequence[Record], size: int) -> int:
        return self.lookup.batch * sum(table.integer("dim") for table in tables) * size

    def _uncached(self, tables: tuple[Record, ...]) -> tuple[Launch, ...]:
        """List the rows that the cache lacks; nobody has counted these kernels."""
        total = self.lookup.lookups * len(tables)
        touched = sum(map(self.lookup.touched, tables))
        bits = reductions.key_bits(sum(table.integer("rows") for table in tables))
        found = touched * reductions.INDEX_BYTES
        return (
            *reductions.radix_sort(total, bits, reductions.INDEX_BYTES),
            *reductions.runs(total, touched, reductions.INDEX_BYTES),
            reductions.stream("scan", "lru_cache_find_uncached", touched, found, found),
        )

    def _filled(
        self, dtype: DType, tables: tuple[Record, ...], phase: str, *, awaited: bool
    ) -> Iterator[Launch]:
        """Yield the rows on their way: from the tier to the cache, and back.

        A lookup of an inference brings rows in and drops others. An update reads, and
        writes, those that found no place.
        """
        tier, trains = str(tables[0]["tier"]), bool(self.settings.updates)
        medium, on_gpu = f"tier.{tier}", not self.settings.on_cpu
        params = self._params(tables, phase)
        ahead = self._ahead(tables)

        def side(op: str, name: str, waits: Waits, **more: AttrValue) -> Launch:
            launch = vector_launch(op, dtype, {**params, **more}, _NOTHING)
            detail = str(more.get("kind", op))
            return _aside(launch, name, detail, waits, ahead=ahead)

        read = side("tier_read", medium, Waits.COMPUTE)
        if on_gpu:
            yield read
            read = side("tier_fill", "rows.in", Waits.PREVIOUS, kind=H2D)
        yield attrs.evolve(read, awaited=awaited and not ahead)
        if not trains:
            return
        if on_gpu:
            yield side("tier_fill", "rows.out", Waits.COMPUTE, kind=D2H)
        follows = Waits.PREVIOUS if on_gpu else Waits.COMPUTE
        yield side("tier_write", medium, follows)

    def _asked(
        self, dtype: DType, tables: tuple[Record, ...], nbytes: int
    ) -> Iterator[Launch]:
        """Yield a request to servers: indices go out, pooled rows come back."""
        lookups = self.lookup
        indices = len(tables) * lookups.index_bytes * (lookups.lookups + lookups.batch)
        us: dict[str, AttrValue] = {"us": float(str(tables[0]["rpc_us"]))}
        request = vector_launch("server_request", dtype, us, _NOTHING)
        ahead = self._ahead(tables)
        yield _aside(request, "requests", "request", Waits.NOTHING, ahead=ahead)
        yield self._transfer(dtype, indices, "send", Waits.PREVIOUS, tables)
        yield self._looked_up(dtype, tables, "forward", Waits.PREVIOUS)
        got = self._transfer(dtype, nbytes, "receive", Waits.PREVIOUS, tables)
        yield attrs.evolve(got, awaited=self.settings.on_cpu and not ahead)

    def _looked_up(
        self, dtype: DType, tables: tuple[Record, ...], phase: str, waits: Waits
    ) -> Launch:
        on_host = tables[0].get("tier") == HOST
        op, name = ("host_lookup", "cores") if on_host else ("server_lookup", "servers")
        launch = vector_launch(op, dtype, self._params(tables, phase), _NOTHING)
        return _aside(launch, name, op, waits, ahead=self._ahead(tables))

    def _transfer(
        self,
        dtype: DType,
        nbytes: int,
        kind: str,
        waits: Waits,
        tables: tuple[Record, ...],
    ) -> Launch:
        params: dict[str, AttrValue] = {
            "bytes": nbytes,
            "servers": tables[0].integer("servers"),
            "server": str(tables[0]["server"]),
            "kind": kind,
            **self._ranks(tables),
        }
        launch = vector_launch("server_transfer", dtype, params, _NOTHING)
        return _aside(launch, f"nic.{kind}", kind, waits, ahead=self._ahead(tables))

    def _copy(
        self,
        dtype: DType,
        nbytes: int,
        kind: str,
        waits: Waits,
        tables: tuple[Record, ...],
    ) -> Launch:
        params: dict[str, AttrValue] = {
            "bytes": nbytes,
            "kind": kind,
            **self._ranks(tables),
        }
        launch = vector_launch("pooled_copy", dtype, params, _NOTHING)
        name = "pooled.in" if kind == H2D else "pooled.out"
        return _aside(launch, name, kind, waits, ahead=self._ahead(tables))

    def _params(self, tables: tuple[Record, ...], phase: str) -> dict[str, AttrValue]:
        params = self.lookup.params(tables) | self._ranks(tables)
        if self.settings.updates:
            params["optimizer"] = self.settings.updates
        return params if phase == "forward" else {**params, "phase": phase}

    def _ranks(self, tables: Sequence[Record]) -> dict[str, AttrValue]:
        """Say who asks at once: the ranks, or as many trainers as are said."""
        said = tables[0].get("trainers")
        sharers = int(str(said)) if said else self.lookup.sharers
        return {"ranks": sharers} if sharers > 1 else {}


def _aside(
    launch: Launch, name: str, detail: str, waits: Waits, *, ahead: bool
) -> Launch:
    return attrs.evolve(
        launch,
        call=MEMCPY,
        kind=TaskKind.COPY,
        detail=detail,
        stream=name,
        after=Waits.AHEAD if ahead else waits,
    )


def _cached(table: Record) -> Record:
    """Return a table as kernels see it that read its cache."""
    return Record({k: v for k, v in table.items() if k not in _PLACES})


def _alike(tables: Sequence[Record]) -> Iterator[tuple[Record, ...]]:
    groups: dict[tuple[object, ...], list[Record]] = {}
    for table in tables:
        shared = (table.get(name) for name in sorted(_PLACES - {"cache"}))
        groups.setdefault(tuple(shared), []).append(table)
    yield from map(tuple, groups.values())
