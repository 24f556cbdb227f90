"""The pass `shard-embeddings`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs

from perfc.ir import AnyKey, Graph, Node, Program, Record, UsageError
from perfc.ir.copying import bound_copy
from perfc.ir.location import Location
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.program import RankClass
from perfc.ir.support import UnsupportedModelError
from perfc.passes import graphs
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.embeddings.codec import FULL_PRECISION, PRECISIONS, Codec
from perfc.passes.embeddings.joint_exchange import joined
from perfc.passes.embeddings.sharded_lookup import Exchange, Lookups
from perfc.passes.embeddings.sharded_tables import (
    Bags,
    LookupNodes,
    ShardingGroup,
    sharding_groups,
)
from perfc.passes.embeddings.sharding_plan import (
    ON_NODES,
    Plan,
    World,
    find_plan,
)
from perfc.passes.embeddings.sharding_types import DATA_PARALLEL
from perfc.passes.embeddings.table_tiers import in_tier
from perfc.passes.facts import TYPED
from perfc.passes.shapes import Inference


@attrs.frozen
class ShardEmbeddings(Transform):
    """Shard the embedding tables of a recommendation model, as TorchRec does.

    Each rank has a batch of its own, of the size of the model's. Bags go to the ranks
    that hold their tables by an all-to-all of lengths and one of indices; these look
    up the samples of all ranks; pooled rows come back by an all-to-all, or, where the
    ranks share the rows of a table, by a reduce-scatter. The pass `training` after it
    derives the exchange of gradients, and updates of the tables in backward.

    It runs before `training`; `data-parallel` over as many ranks, after it, does the
    rest of the model. Ranks that hold tables of other sizes are other rank classes.

    Attributes:
        ranks: How many ranks there are.
        plan: `table-wise`, `row-wise`, `column-wise`, `table-row-wise`, `grid` or
            `data-parallel` for all tables, but for those named behind it, as
            `table-wise;emb_l.0=row-wise`; or a JSON file (`sharding_plan.py`).
        per_node: Ranks of a node, which `table-row-wise` and `grid` share rows among.
        qcomm: What pooled rows and their gradients are sent as: `fp16`, `bf16`, `fp8`
            or `int8` (bytes, with a scale and a bias for 32 of them); if empty, as
            they are. Sums of rows that ranks share fall back to `fp16` from the last
            two, as TorchRec's do from fp8, and their gradients to `bf16`.
        qcomm_backward: What gradients are sent as instead; `fp32` too.
        early: Whether tables are looked up first, so that rows come back while the
            dense features are computed; else where the model looks them up.
        functional: Whether functional collectives bring the rows, as
            `torch.distributed.nn.functional.all_to_all_single`: gradients go back
            (`_AlltoAllSingleBackward`) where the rows were sent, after the backward
            pass of the dense features. Else TorchRec's requests: their gradients go
            back as soon as they are complete, and are waited for there.
        only: A rank that stands for all, as if each had its tables; -1 for all ranks
            as they are.
        fixed_lengths: Whether all bags have as many indices in every batch, so that
            ranks know what they get without telling each other, and no host waits: what
            a step needs to be captured as a CUDA graph.

    """

    name: ClassVar[str] = "shard-embeddings"
    phase: ClassVar[Phase] = Phase.FORWARD
    shares: ClassVar[str] = "batch"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED})

    ranks: int
    plan: str = "table-wise"
    per_node: int = 8
    qcomm: str = ""
    qcomm_backward: str = ""
    early: bool = True
    functional: bool = False
    only: int = -1
    fixed_lengths: bool = False

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        least = 2
        if self.ranks < least:
            msg = f"ranks={self.ranks} of {self.name}: expected at least {least}"
            raise UsageError(msg)
        self._check_precisions()
        if not -1 <= self.only < self.ranks:
            msg = f"only={self.only} of {self.name}: expected a rank below {self.ranks}"
            raise UsageError(msg)
        if self.per_node < 1:
            msg = f"per-node={self.per_node} of {self.name}: expected at least 1"
            raise UsageError(msg)

    def _check_precisions(self) -> None:
        for option, value, known in (
            ("qcomm", self.qcomm, PRECISIONS),
            ("qcomm-backward", self.qcomm_backward, (*PRECISIONS, FULL_PRECISION)),
        ):
            if value and value not in known:
                msg = f"{option}={value!r} of {self.name}: expected {', '.join(known)}"
                raise UsageError(msg)
        if self.qcomm_backward and not self.qcomm:
            msg = f"qcomm-backward of {self.name} goes with qcomm, that of forward"
            raise UsageError(msg)

    @property
    def _codec(self) -> Codec | None:
        """What rows are sent as; None for as they are."""
        back = self.qcomm_backward or self.qcomm
        return Codec(self.qcomm, back) if self.qcomm else None

    @property
    def _world(self) -> World:
        return World(self.ranks, min(self.per_node, self.ranks))

    def run(self, program: Program, ctx: PassContext) -> Program:
        """Make a class of each kind of rank."""
        graph = graphs.forward_graph_of(program, self.name)
        world = self._world
        sizes = [t.size for bags in Bags.lots(graph) for t in bags.tables]
        plan = find_plan(self.plan, sizes, world)
        # Refuse nodes that are not full, if the plan asks for any.
        on_nodes = any(placement.kind in ON_NODES for placement in plan.values())
        if on_nodes and self.ranks % self._world.per_node:
            msg = (
                f"per-node={self.per_node} of {self.name}: {self.ranks} ranks do not "
                "go evenly onto nodes"
            )
            raise UsageError(msg)
        _put_into_tiers(graph, plan)
        lots = Bags.lots(graph)
        found = [g for bags in lots for g in sharding_groups(bags.tables, plan, world)]
        self._check_pooling(lots[0], found)
        alike = _alike(found, world)
        if self.only >= 0:
            alike = [(self.only, *(r for r in range(self.ranks) if r != self.only))]
        classes = tuple(
            RankClass(tuple(sorted(ranks)), ops=self._shard(graph, plan, ranks[0]))
            for ranks in alike
        )
        ctx.note("sharded-tables", _summary(plan, world, len(classes)))
        self._tell_fallback(found, ctx)
        if self.fixed_lengths:
            ctx.note(
                "fixed-lengths",
                "all bags are taken to have as many indices in every batch: ranks do "
                "not tell each other how much they get",
            )
        return attrs.evolve(program, classes=classes, replicas=self.ranks)

    def _tell_fallback(self, found: Sequence[ShardingGroup], ctx: PassContext) -> None:
        """Say where sums are sent in another precision than asked for."""
        codec = self._codec
        if codec is None or all(group.among == 1 for group in found):
            return
        sums = codec.of_sums()
        if sums != codec:
            ctx.note(
                "qcomm-of-sums",
                "NCCL adds up no fp8 and no int8: where ranks share rows, they go as "
                f"{sums.forward}, and their gradients as {sums.backward}, as "
                "TorchRec's codecs do for fp8",
            )

    def _check_pooling(self, bags: Bags, found: Sequence[ShardingGroup]) -> None:
        if bags.first.attributes.text("mode") == "sum":
            return
        shared = [group for group in found if group.among > 1]
        if shared:
            msg = (
                f"{bags.first} takes the mean of a bag: tables whose rows ranks share "
                "are summed up; shard them table-wise or column-wise"
            )
            raise UnsupportedModelError(msg)

    def _shard(self, source: Graph, plan: Plan, rank: int) -> Graph:
        """Write the graph of one rank."""
        graph = bound_copy(source, {})
        lots = Bags.lots(graph)
        nodes = {node: tables for bags in lots for node, tables in bags.nodes.items()}
        first = next(node for node in graph if node in nodes)
        module = first.location.module.rpartition(".")[0]
        tape = graphs.Tape(
            graph, Inference(graph, BUILTIN_OPS), Location(module=module)
        )
        tape.constants = "shard"
        codec = self._codec
        exchanges = [
            Exchange(
                *(tape, bags, group, rank // group.among, codec),
                functional=self.functional,
                fixed=self.fixed_lengths,
            )
            for bags in lots
            for group in sharding_groups(bags.tables, plan, self._world)
        ]
        local = _kept_local(graph, nodes, plan)
        if exchanges:
            start = next(iter(graph)) if self.early else first
            Lookups(tape, joined(exchanges), nodes).write(start)
        sharded = [node for node in nodes if node not in local]
        graph.erase_dead(keep=lambda node: node not in sharded)
        lists = (v for node in sharded for v in node.operands[len(nodes[node]) :])
        graph.erase_unused_inputs(lists)
        graph.erase_unused_parameters()
        return graph


def _put_into_tiers(graph: Graph, plan: Plan) -> None:
    """Put tables where the plan says that they lie; others stay where they are."""

    def placed(name: str, table: Record) -> Record:
        found = plan[name]
        return in_tier(table, found.tier, found.cache) if found.tier else table

    nodes = [node for bags in Bags.lots(graph) for node in bags.nodes]
    graphs.change_tables([(graph, node) for node in nodes], placed)


def _kept_local(graph: Graph, lookups: LookupNodes, plan: Plan) -> frozenset[Node]:
    """Mark the lookups whose tables every rank has; return them."""
    local: set[Node] = set()
    for node, tables in lookups.items():
        kinds = {plan[table.name].kind == DATA_PARALLEL for table in tables}
        if len(kinds) > 1:
            msg = (
                f"{node} looks up tables that all ranks have together with others; "
                "give the model one lookup a table"
            )
            raise UnsupportedModelError(msg)
        if True in kinds:
            records = tuple(t.record.updated(sharding=DATA_PARALLEL) for t in tables)
            graph.set_attributes(node, tables=records)
            local.add(node)
    return frozenset(local)


def _alike(found: Sequence[ShardingGroup], world: World) -> list[tuple[int, ...]]:
    """Sort ranks by what they hold: those that hold alike run the same graph."""
    groups: dict[object, list[int]] = {}
    for rank in range(world.ranks):
        key = tuple(
            tuple(shard.key for shard in group.places[rank // group.among])
            for group in found
        )
        groups.setdefault(key, []).append(rank)
    if all(group.among in (1, world.ranks) for group in found):
        return [tuple(ranks) for ranks in groups.values()]
    return [part for ranks in groups.values() for part in _by_nodes(ranks, world)]


def _by_nodes(ranks: Sequence[int], world: World) -> list[tuple[int, ...]]:
    """Keep whole nodes together; ranks of parts of nodes meet in their own node."""
    nodes: dict[int, list[int]] = {}
    for rank in ranks:
        nodes.setdefault(rank // world.per_node, []).append(rank)
    if all(len(own) == world.per_node for own in nodes.values()):
        return [tuple(ranks)]
    return [tuple(own) for own in nodes.values()]


def _summary(plan: Plan, world: World, classes: int) -> str:
    kinds = [f"{p.tier} {p.kind}".strip() for p in plan.values()]
    counts = ", ".join(f"{kinds.count(k)} {k}" for k in dict.fromkeys(kinds))
    unlike = f", of {classes} kinds" if classes > 1 else ", all alike"
    return f"{counts} on {world.ranks} ranks{unlike}"
