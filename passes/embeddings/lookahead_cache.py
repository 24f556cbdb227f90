"""The pass `lookahead-cache`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import attrs

from perfc import ir
from perfc.costmodels import locality
from perfc.ir.dims import evaluate
from perfc.ir.launch import HOST_KINDS, ResourceKind
from perfc.ir.node_kinds import is_embedding_bag
from perfc.ir.support import US, UnsupportedModelError
from perfc.passes.base import Pass, PassContext
from perfc.passes.embeddings.sharded_tables import lookups_of_tables
from perfc.passes.facts import LAUNCHES
from perfc.passes.graphs import LaunchCopy, typed

LOOK_AHEAD, LRU, NONE = POLICIES = ("lookahead", "lru", "none")
"""Caches of rows on trainers: one that knows the next batches, one that does not."""

_GBIT = 1e9 / 8
_STAGE = "lookahead-cache"


@attrs.frozen
class LookaheadCache(Pass):
    """Keep tables on servers, and rows on trainers that know the next batches.

    As BagPipe (arXiv 2202.12429): every trainer has the model and a part of a cache
    that all share. An oracle on another host reads *window* batches ahead; rows that
    the cache lacks are fetched as early, on a stream of their own, and rows that no
    batch of the window wants are written back behind them. Rows of a batch that the
    next one wants are all-reduced at once, those of the batch before that others may
    want beside the step. So the step is the longest of compute with the first
    collective, the way of rows over the NICs, and the oracle.

    With `policy=lru` a cache of the last rows is asked when the batch is there, with
    `none`, or a window of 0, there is no cache: the step waits for its rows, and for
    their way back. With `lru` nobody keeps the cached rows of trainers alike, which
    makes its time a lower bound. NICs of trainers, and of servers, share the rows
    evenly: the slower side decides. Fetched and written rows take turns.

    It stands behind passes that make launches; kernels of the step are those of tables
    on the device. Popularity of rows is the model's (`--popularity`).

    Attributes:
        window: Batches ahead; shrunk where the cache is too small, which it says.
        rows: Rows of all tables that the cache holds.
        servers: Hosts that have the tables, each with the NICs of a trainers' node.
        policy: `lookahead`, `lru` or `none`.
        oracle_us: Microseconds of the oracle for a batch.
        nic_gbit_per_s: Rate of the NICs of a host; 0 for those of the system's nodes.

    """

    name: ClassVar[str] = "lookahead-cache"
    requires: ClassVar[frozenset[ir.AnyKey]] = frozenset({LAUNCHES})
    provides: ClassVar[frozenset[ir.AnyKey]] = frozenset({LAUNCHES})
    runs_before: ClassVar[frozenset[str]] = frozenset({"kernel-cost", "overhead"})

    window: int
    rows: int
    servers: int = 1
    policy: str = LOOK_AHEAD
    oracle_us: float = 0.0
    nic_gbit_per_s: float = 0.0

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        for option, value, least, what in (
            ("window", self.window, 0, "batches ahead, 0 or more"),
            ("rows", self.rows, 1, "a cache of rows, 1 or more"),
            ("servers", self.servers, 1, "1 or more"),
        ):
            if value < least:
                msg = f"{option}={value} of {self.name}: expected {what}"
                raise ir.UsageError(msg)
        if self.policy not in POLICIES:
            msg = (
                f"policy={self.policy!r} of {self.name}: expected {', '.join(POLICIES)}"
            )
            raise ir.UsageError(msg)
        for option, number in (
            ("oracle-us", self.oracle_us),
            ("nic-gbit-per-s", self.nic_gbit_per_s),
        ):
            if not 0 <= number < math.inf:
                msg = f"{option}={number:g} of {self.name}: expected 0 or more, finite"
                raise ir.UsageError(msg)

    def run(self, program: ir.Program, ctx: PassContext) -> None:
        """Put what rows need beside, or around, the step of every rank."""
        tables = cached_tables(program)
        ranks = sum(len(rank.ranks) for rank in program.classes)
        plan = self._plan(tables, ranks, ctx)
        graphs = tuple(plan.around(graph) for graph in ctx.get(LAUNCHES, program))
        ctx.set(LAUNCHES, program, graphs)

    def _plan(
        self, tables: Sequence[locality.CachedTable], ranks: int, ctx: PassContext
    ) -> _Plan:
        window = self.window
        if self.policy == LOOK_AHEAD:
            window = locality.window_that_fits(tables, self.window, self.rows)
            if window < self.window:
                ctx.note(
                    "window-shrunk",
                    f"a cache of {self.rows:,} rows has room for the next {window} "
                    f"batches, not for {self.window}",
                )
        found = [table.ahead(window) for table in tables]
        fetched = [rows.fetched for rows in found]
        if self.policy == LRU:
            held = locality.lru_window(tables, self.rows)
            fetched = [0.0 if math.isinf(held) else t.missed(held) for t in tables]
            if ranks > 1:
                ctx.note(
                    "lru-apart",
                    "rows that trainers have in a cache of the last ones are not kept "
                    "alike: its time is a lower bound",
                )
        elif self.policy == NONE:
            fetched = [rows.touched for rows in found]
        moved = _bytes(tables, fetched)
        ahead = self.policy == LOOK_AHEAD and window > 0
        ctx.note(
            "row-cache",
            f"{math.fsum(fetched):,.0f} of {math.fsum(r.touched for r in found):,.0f} "
            f"rows of a batch are fetched, {moved / 1e6:,.1f} MB moved"
            + (f", {window} batches early" if ahead else ""),
        )
        nodes, _ = _on_nodes(ranks, ctx)
        return _Plan(
            ahead=ahead,
            way_s=moved / (self._rate(ctx) * min(nodes, self.servers)),
            oracle_s=self.oracle_us / US if ahead else 0.0,
            synced=_synced(tables, found, ranks, ctx) if ahead else (),
        )

    def _rate(self, ctx: PassContext) -> float:
        """Return the bytes a second of the NICs of a host, one direction."""
        system = ctx.target.system
        given = self.nic_gbit_per_s * _GBIT
        rate = given
        if not given and system is not None:
            rate = system.nic_bytes_per_s * system.nics_per_node
        if rate > 0:
            return rate
        msg = (
            f"{ctx.target.name} has no network: give {self.name} nic-gbit-per-s, or "
            "name a system with one (`perfc targets` lists them)"
        )
        raise ir.UsageError(msg)


def cached_tables(program: ir.Program) -> list[locality.CachedTable]:
    """Return the tables of a program, as a batch of all its ranks looks them up."""
    ranks = sum(len(rank.ranks) for rank in program.classes)
    graph = program.classes[0].ops
    nodes = [] if graph is None else [node for node in graph if is_embedding_bag(node)]
    found: list[locality.CachedTable] = []
    for node in nodes:
        lookups = lookups_of_tables(node)
        records = node.attributes.records("tables")
        for table, weight, count in zip(records, node.operands, lookups, strict=False):
            said = table.get("popularity", node.attributes.get("popularity"))
            row_bytes = table.integer("dim") * typed(weight).dtype.bits / 8
            number = float(evaluate(count, program.bindings)) * ranks
            popularity = locality.parse_popularity(str(said or ""))
            rows = table.integer("rows")
            found.append(locality.CachedTable.of(popularity, rows, number, row_bytes))
    if not found:
        msg = f"{program.name} has no embedding bags: there are no rows to cache"
        raise UnsupportedModelError(msg)
    return found


def _on_nodes(ranks: int, ctx: PassContext) -> tuple[int, int]:
    system = ctx.target.system
    return (1, ranks) if system is None else system.members(ranks)


def _bytes(tables: Sequence[locality.CachedTable], rows: Sequence[float]) -> float:
    return math.fsum(t.row_bytes * n for t, n in zip(tables, rows, strict=True))


def _synced(
    tables: Sequence[locality.CachedTable],
    found: Sequence[locality.LookAheadRows],
    ranks: int,
    ctx: PassContext,
) -> tuple[ir.Kernel, ...]:
    """Return the collectives of a step: of rows wanted next, and of others."""
    if ranks < 2:  # noqa: PLR2004 - one trainer has all rows
        return ()
    nodes, per_node = _on_nodes(ranks, ctx)
    sizes = (
        _bytes(tables, [rows.wanted_next for rows in found]),
        _bytes(tables, [rows.others for rows in found]),
    )
    return tuple(
        ir.Kernel(
            "all_reduce",
            "fp32",
            "",
            ir.Record(
                {
                    "bytes": math.ceil(size),
                    "ranks": ranks,
                    "nodes": nodes,
                    "gpus_per_node": per_node,
                }
            ),
            ir.Work(0, math.ceil(size), math.ceil(size)),
        )
        for size in sizes
    )


@attrs.frozen
class _Plan:
    """What a step needs for its rows.

    Attributes:
        ahead: Whether rows are there before the step, else it waits for them.
        way_s: Seconds of fetching rows, and of writing as many back.
        oracle_s: Seconds of the oracle.
        synced: Collectives over trainers: what the next batch wants, and others.

    """

    ahead: bool
    way_s: float
    oracle_s: float
    synced: tuple[ir.Kernel, ...]

    def around(self, graph: ir.LaunchGraph) -> ir.LaunchGraph:
        """Return the launches of a rank with tasks for rows.

        Ops are in the order of their tasks, as the host's times want them.
        """
        copy = LaunchCopy(graph)
        made = copy.result
        made.kernels += graph.kernels
        rows = _Rows.begun(made)
        fetch = rows.moved("fetch", self.way_s)
        if self.ahead:
            rows.moved("write_back", self.way_s)
            if self.oracle_s:
                rows.stands_still("oracle", self.oracle_s)
        first = next(n for n, kind in enumerate(graph.kind) if kind in HOST_KINDS)
        main, end = graph.resource[first], _end(graph)
        if self.synced:
            rows.collective("sync_others", main, self.synced[1])
        op = -1
        for task in range(len(graph)):
            if task == end and self.synced:
                op = _with_ops(made, graph, op, graph.op[task] - 1)
                after = _ends(made, graph)
                rows.collective("sync_next", main, self.synced[0], after)
            op = _with_ops(made, graph, op, graph.op[task])
            copy.add(task, kernel=graph.kernel[task], op=None if op >= 0 else -1)
            if task == first and not self.ahead:
                number = copy.moved[task]
                made.after[number] = (*made.after[number], fetch)
        _with_ops(made, graph, op, len(graph.ops) - 1)
        if not self.ahead:
            rows.moved("write_back", self.way_s, _ends(made, graph))
        return made


@attrs.frozen(eq=False)
class _Rows:
    """Writes tasks for rows.

    Attributes:
        made: The launch graph.
        stream: The stream of rows.
        issue: The host task, of a thread of its own, that issues their way.

    """

    made: ir.LaunchGraph
    stream: int
    issue: int

    @classmethod
    def begun(cls, made: ir.LaunchGraph) -> _Rows:
        """Begin with the thread and the stream of rows."""
        thread, stream = made.thread("rows"), made.stream("rows")
        op = _op(made, "begin")
        issue = made.task(ir.TaskKind.HOST, thread, op=op, detail=_STAGE, stated_s=0.0)
        return cls(made, stream, issue)

    def moved(self, what: str, seconds: float, after: tuple[int, ...] = ()) -> int:
        """Move rows over the network; return the task."""
        return self.made.task(
            ir.TaskKind.COPY,
            self.stream,
            op=_op(self.made, what),
            issue=self.issue,
            after=after,
            detail=what.replace("_", " "),
            stated_s=seconds,
        )

    def stands_still(self, what: str, seconds: float) -> None:
        """Let another host take its time."""
        thread = self.made.thread(what)
        op = _op(self.made, what)
        self.made.task(ir.TaskKind.HOST, thread, op=op, detail=what, stated_s=seconds)

    def collective(
        self, what: str, thread: int, kernel: ir.Kernel, after: tuple[int, ...] = ()
    ) -> None:
        """Let all trainers sum rows up."""
        made, stream = self.made, self.made.stream(what)
        op = _op(made, what)
        call = made.task(ir.TaskKind.CALL, thread, op=op, detail=_CALL)
        made.task(
            ir.TaskKind.COLLECTIVE,
            stream,
            op=op,
            kernel=made.intern(kernel),
            issue=call,
            after=after,
            group=f"{_STAGE}.{what}#0",
        )


_CALL = "cudaLaunchKernelExC"


def _op(made: ir.LaunchGraph, what: str) -> int:
    return made.add_op(ir.LaunchOp(f"{_STAGE}::{what}", f"{_STAGE}.{what}"))


def _with_ops(made: ir.LaunchGraph, graph: ir.LaunchGraph, op: int, until: int) -> int:
    """Add the ops after *op* up to *until*; return the last that is there."""
    for number in range(op + 1, until + 1):
        made.add_op(graph.ops[number])
    return max(op, until)


def _end(graph: ir.LaunchGraph) -> int:
    syncs = [n for n, kind in enumerate(graph.kind) if kind is ir.TaskKind.SYNC]
    last = syncs[-1] if syncs else len(graph) - 1
    if graph.op[last] < 0:
        return last
    return graph.op.index(graph.op[last])


def _ends(made: ir.LaunchGraph, graph: ir.LaunchGraph) -> tuple[int, ...]:
    """Return the last task so far on each stream of the step."""
    streams = {
        number
        for number, resource in enumerate(graph.resources)
        if resource.kind is ResourceKind.STREAM
    }
    last = {made.resource[task]: task for task in range(len(made))}
    return tuple(sorted(task for number, task in last.items() if number in streams))
