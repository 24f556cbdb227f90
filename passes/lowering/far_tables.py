"""Tables that do not lie in device memory: who shares them, whether they fit, remarks.

What lies in the host's memory, in a tier or on servers, ranks of a node have once, and
share: but for tables that are sharded, of which each rank has its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from perfc import ir
from perfc.costmodels import UVM_CACHING, Target, tiers
from perfc.costmodels.embedding import DRAM, HOST, REMOTE, UVM, server_target
from perfc.costmodels.machine import Tier
from perfc.costmodels.sheets import assumed_system, find_tier, known_tiers
from perfc.ir.node_kinds import is_embedding_bag
from perfc.ir.program import RankClass
from perfc.ir.support import format_bytes
from perfc.passes.base import PassContext
from perfc.passes.graphs import placed_lookups, typed
from perfc.passes.lowering.eager import Settings, is_far, is_looked_up_elsewhere

_STATE_BYTES = 4
_IN_DRAM = frozenset({UVM, UVM_CACHING, HOST, DRAM})


def is_spread(graph: ir.Graph, *, on_cpu: bool) -> bool:
    """Whether others than the device do a part of a graph's lookups."""
    return any(
        is_far(table, on_cpu=on_cpu)
        for node in placed_lookups(graph)
        for table in node.attributes.records("tables")
    )


def kept_on_host(graph: ir.Graph, *, on_cpu: bool) -> frozenset[ir.Value]:
    """Return inputs that only others than the device read: indices of their lookups."""
    elsewhere = {
        node
        for node in placed_lookups(graph)
        if all(
            is_looked_up_elsewhere(table, on_cpu=on_cpu)
            for table in node.attributes.records("tables")
        )
    }
    if not elsewhere:
        return frozenset()
    read = {value for node in graph if node not in elsewhere for value in node.operands}
    asked = {value for node in elsewhere for value in node.operands}
    return frozenset(v for v in graph.inputs if v in asked and v not in read)


def placed_settings(program: ir.Program, settings: Settings) -> Settings:
    """Return settings with the ranks that share what is outside of device memory."""
    sharing = [rank for rank in program.classes if _looks_up(rank)]
    if not sharing:
        return settings
    far = any(is_spread(graph, on_cpu=settings.on_cpu) for graph in _graphs(sharing))
    return attrs.evolve(
        settings,
        sharers=sum(len(rank.ranks) for rank in sharing),
        updates=_optimizer(sharing) if far else "",
    )


def _graphs(ranks: Sequence[RankClass]) -> Iterator[ir.Graph]:
    yield from (rank.ops for rank in ranks if rank.ops is not None)


def _looks_up(rank: RankClass) -> bool:
    return rank.ops is not None and bool(placed_lookups(rank.ops))


def _optimizer(ranks: Sequence[RankClass]) -> str:
    for graph in _graphs(ranks):
        for node in placed_lookups(graph):
            if kind := node.attributes.text("optimizer", ""):
                return kind
    return ""


@attrs.frozen
class _Stored:
    """What lies in one place.

    Attributes:
        table: One of its tables.
        nbytes: Of all of them, on one node or on all servers.

    """

    table: ir.Record
    nbytes: float


def check_places(
    program: ir.Program, settings: Settings, target: Target, ctx: PassContext
) -> None:
    """Refuse tables that do not fit where they are put; say what is assumed."""
    updates = _optimizer([rank for rank in program.classes if _looks_up(rank)])
    for place, stored in _stored(program, target, updates).items():
        if place == REMOTE:
            table = stored.table
            count, name = table.integer("servers"), str(table["server"])
            resources = server_target(name).resources
            room = 0.0 if resources is None else resources.dram_bytes
            wanted = -(-int(stored.nbytes) // max(int(room), 1))
            advice = f"; servers={wanted} hold them"
            servers = "server" if count == 1 else "servers"
            _check_room(f"{count} {servers} ({name})", stored, count * room, advice)
            waits = "does not wait for" if table.get("ahead") else "waits for"
            ctx.note(
                "remote",
                f"{count} x {name} are parameter servers; a request takes "
                f"{float(str(table['rpc_us'])):g} us, and a step {waits} its rows",
                name,
            )
        elif place in _IN_DRAM:
            _check_host(target, stored, ctx)
        else:
            _check_tier(target, stored, ctx, place)
    if settings.on_cpu:
        return
    for place in sorted(_places(program) & {HOST, REMOTE}):
        ctx.note(
            "looked-up-elsewhere",
            f"{_WHO[place]} look tables up and update them: their rows are taken to be "
            "in no cache of the processors, and pooled rows cross the host link",
            target.name,
        )


_OTHERS = "uvm, uvm-caching, host or remote"

_WHO = {HOST: "the host's cores", REMOTE: "parameter servers"}


def _places(program: ir.Program) -> set[str]:
    return {
        str(table["tier"])
        for graph in _graphs(program.classes)
        for node in placed_lookups(graph)
        for table in node.attributes.records("tables")
        if table.get("tier")
    }


def _stored(program: ir.Program, target: Target, updates: str) -> dict[str, _Stored]:
    """Return the load of each place: of one node, the host's memory together."""
    found: dict[str, _Stored] = {}
    system = None if target.device.synchronous else target.once(assumed_system)
    together = 1 if system is None else system.gpus_per_node
    for rank in program.classes:
        if rank.ops is None:
            continue
        own = min(len(rank.ranks), together)
        for node in filter(is_embedding_bag, placed_lookups(rank.ops)):
            tables = node.attributes.records("tables")
            for table, weight in zip(tables, node.operands, strict=False):
                tier = str(table.get("tier") or "")
                if not tier:
                    continue
                place = DRAM if tier in _IN_DRAM else tier
                nbytes = _bytes(table, weight, updates, tier)
                nbytes *= own if table.get("sharding") else 1
                before = found.get(place)
                total = nbytes + (before.nbytes if before else 0.0)
                found[place] = _Stored(table, total)
    return found


def _bytes(table: ir.Record, weight: ir.Value, updates: str, tier: str) -> float:
    """Return the bytes of a table; the states of others than FBGEMM's lie beside it."""
    states = ir.OPTIMIZER_STATES.get(updates, ())
    rows, dim = table.integer("rows"), table.integer("dim")
    own = [s for s in states if s == "element" or tier not in (UVM, UVM_CACHING)]
    beside = sum(_STATE_BYTES * (dim if s == "element" else 1) for s in own)
    return rows * (dim * typed(weight).dtype.bits / 8 + beside)


def _check_host(target: Target, stored: _Stored, ctx: PassContext) -> None:
    """Hold tables in the host's memory against it, where the sheet says its size."""
    if target.resources is None or target.device.synchronous:
        return
    _check_room(f"the host of {target.name}", stored, target.resources.dram_bytes, "")
    ctx.note(
        "shared-host",
        "ranks of a node share one copy of these tables, its memory, uplinks and "
        f"cores, as the sheet of {target.name} says; rows reach a share of the "
        "memory's rate that is assumed",
        target.name,
    )


def _check_tier(target: Target, stored: _Stored, ctx: PassContext, place: str) -> None:
    count = int(str(stored.table.get("count", 1)))
    try:
        tier = find_tier(target, place, count)
    except ir.UsageError as error:
        msg = f"place-embeddings: {error}; expected one of these, {_OTHERS}"
        raise ir.UsageError(msg) from None
    nodes = _nodes(target, tier, stored.nbytes)
    _check_room(f"tier {place}", stored, tier.capacity_bytes, f"; {nodes}")
    cache = float(str(stored.table.get("cache", 0.0)))
    said = f"tier {place}: device memory caches {cache:.0%} of the rows of its tables; "
    said += nodes
    if place not in known_tiers(target):
        said += (
            f"; it is {count} x {tier.device or place}, as the sheet of {target.name} "
            "has none"
        )
    if tier.assumed:
        said += f"; assumed of it: {', '.join(sorted(tier.assumed))}"
    ctx.note("tier", said, target.name)


def _nodes(target: Target, tier: Tier, nbytes: float) -> str:
    """Say how many nodes hold so much, with a tier and in DRAM alone."""
    known = known_tiers(target)
    memory = [known[DRAM]] if DRAM in known else []
    with_it = tiers.nodes_needed(nbytes, [*memory, tier])
    text = f"{_counted(with_it)} such a tier"
    if not memory:
        return text
    return f"{text}, {_counted(tiers.nodes_needed(nbytes, memory))} DRAM alone"


def _counted(nodes: int) -> str:
    return "1 node holds them with" if nodes == 1 else f"{nodes} nodes hold them with"


def _check_room(place: str, stored: _Stored, room: float, advice: str) -> None:
    if stored.nbytes <= room:
        return
    missing = format_bytes(stored.nbytes - room)
    msg = (
        f"{place}: {format_bytes(stored.nbytes)} of tables do not fit into "
        f"{format_bytes(room)}; {missing} are missing{advice}"
    )
    raise ir.PerfcError(msg)
