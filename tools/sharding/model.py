"""A model on many GPUs under any sharding plan: what `perfc shard` asks of perfc."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import attrs
import numpy as np

from perfc import passes
from perfc.costmodels import Target, assumed_system
from perfc.ir import OPTIMIZER_STATES, Graph, Program, UsageError
from perfc.ir.dims import Dim
from perfc.ir.dims import evaluate as evaluated
from perfc.ir.support import UnsupportedModelError, brief
from perfc.passes import graphs
from perfc.passes.embeddings import Bags, EmbeddingTable, TableSize, find_plan
from perfc.planning import step
from perfc.planning.plans import DEVICE_ONLY, Table, Tiers, plan_line
from perfc.tools import models
from perfc.tools.analysis import analyze
from perfc.tools.reports import Report, Results
from perfc.tools.request import TRAINING, Request


@attrs.frozen
class _Popularity(passes.Transform):
    """Say how lookups spread over the rows of tables.

    Attributes:
        texts: By table; of the others what stands under "".

    """

    texts: tuple[tuple[str, str], ...]
    name = "popularity"

    def run(self, program: Program, ctx: passes.PassContext) -> Program:
        """Change the records of tables, in place."""
        graph, texts = graphs.forward_graph_of(program, "shard"), dict(self.texts)
        bags = Bags.of(graph)
        names = [table.name for table in bags.tables]
        if unknown := sorted(texts.keys() - {*names, ""}):
            some = ", ".join(names[:_SHOWN])
            msg = f"--popularity: the model has no table {unknown[0]!r}; it has {some}"
            raise UsageError(msg)
        for node, tables in bags.nodes.items():
            said = [texts.get(table.name, texts.get("")) for table in tables]
            records = tuple(
                table.record if text is None else table.record.updated(popularity=text)
                for table, text in zip(tables, said, strict=True)
            )
            graph.set_attributes(node, tables=records)
        return program


_SHOWN = 6


@attrs.frozen(eq=False, kw_only=True)
class ShardModel:
    """A model, the machine, and how a step of it runs.

    Attributes:
        request: How the model is asked for: what `load` takes, or a program with its
            batch bound; its batch is that of each rank.
        target: The machine.
        world: The ranks.
        qcomm: What pooled rows are sent as.
        qcomm_backward: What their gradients are sent as, if not as the rows.

    """

    __repr__ = brief

    request: Request
    target: Target
    world: passes.World
    qcomm: str = ""
    qcomm_backward: str = ""

    def loaded(self, transforms: Sequence[passes.Pass] = ()) -> models.Model:
        """Load it, with some passes."""
        asked, said = self.request, list[passes.Pass]()
        if asked.popularity:
            said = [_Popularity(tuple(asked.popularity.items()))]
        transforms = [*models.conversions(asked.dtype), *said, *transforms]
        if isinstance(asked.model, Program):
            return models.prepare(asked.model, None, None, transforms)
        return models.load(asked.model, batch=asked.batch, transforms=transforms)

    @functools.cached_property
    def forward(self) -> models.Model:
        """The model on one rank, not sharded."""
        return self.loaded()

    @functools.cached_property
    def bags(self) -> Bags:
        """Its lookups."""
        return Bags.of(graphs.forward_graph_of(self.forward.program, "shard"))

    @functools.cached_property
    def samples(self) -> int:
        """Bags of a table on one rank."""
        return self._number(self.bags.batch)

    def _number(self, dim: Dim) -> int:
        return int(evaluated(dim, self.forward.program.bindings))

    @functools.cached_property
    def tables(self) -> tuple[Table, ...]:
        """Its tables."""
        given = self.bags.first.attributes.get("popularity")
        popularity = given if isinstance(given, str) and given else "uniform"
        tables = self.bags.tables
        placed = {t.name: t.record["tier"] for t in tables if "tier" in t.record}
        found: list[Table] = []
        for table in tables:
            own = table.record.get("popularity")
            kind = table.weight.type
            bits = 32 if kind is None else kind.dtype.bits
            found.append(
                Table(
                    name=table.name,
                    rows=table.rows,
                    dim=table.dim,
                    pooling=self._pooling(table),
                    element_bytes=bits / 8,
                    popularity=own if isinstance(own, str) and own else popularity,
                )
            )
        for one in found:
            if one.name in placed:
                msg = (
                    f"table {one.name!r} lies in tier {placed[one.name]} already; take "
                    "place-embeddings out: --tiers says where tables may lie"
                )
                raise UnsupportedModelError(msg)
            if one.rows < 1 or one.dim < 1:
                msg = f"table {one.name!r} has {one.rows} rows of {one.dim} columns"
                raise UnsupportedModelError(msg)
        return tuple(found)

    def _pooling(self, table: EmbeddingTable) -> float:
        """Return the rows of a bag; where tables do not say it they are alike."""
        if "pooling" in table.record:
            return table.pooling
        return self._number(table.lookups) / self.samples

    def plan(self, text: str) -> passes.Plan:
        """Return the plan that a name or a file says."""
        sizes = [TableSize(t.name, t.dim, t.dim * t.pooling) for t in self.tables]
        return find_plan(text, sizes, self.world)

    def report(self, plan: passes.Plan, only: int = -1) -> Report:
        """Analyze a step under a plan: all ranks, or as if all were like *only*."""
        sharding = passes.ShardEmbeddings(
            ranks=self.world.ranks,
            plan=plan_line(plan, self.tables, self.world),
            per_node=self.world.per_node,
            qcomm=self.qcomm,
            qcomm_backward=self.qcomm_backward,
            only=only,
        )
        transforms = models.training_passes(
            self.request.mode, self.request.optimizer, [sharding]
        )
        transforms = models.parallel_passes(self.world.ranks, transforms)
        return analyze(self.loaded(transforms), self.target, dtype=self.request.dtype)

    @functools.cached_property
    def _first(self) -> _First:
        """A step with every table whole, of the rank that looks most up."""
        plan = self._reference_plan(frozenset(step.SHARDING_GROUPS[:1]))
        rank = _busiest(plan, self.tables)
        report = self.report(plan, only=rank)
        return _First(plan, rank, report, step.LookupOps.of(_graph(report.results)))

    @functools.cached_property
    def dense_bytes(self) -> float:
        """What a rank's memory holds besides tables: the peak without them."""
        first, need = self._first, self._memory
        held = [t for t in self.tables if first.rank in first.plan[t.name].places]
        parts = [step.Part(t.rows, t.dim, t.pooling) for t in held]
        tables = zip(parts, held, strict=True)
        used = sum(need.of(part, table.element_bytes) for part, table in tables)
        peak = max(use.peak_bytes for use in first.report.memory_uses)
        return max(0.0, peak - used)

    def cost(
        self, types: Sequence[str], tiers: Tiers = DEVICE_ONLY
    ) -> step.PhysicalCost:
        """Return perfc's own cost of its plans."""
        samples = self.samples * self.world.ranks
        ops, others = self._first.ops, self._typical_parts()
        prices = step.PartPrices(ops, self.target, samples, self.world.ranks, others)
        cost = step.PhysicalCost(
            self.world,
            self.target,
            prices,
            self._memory,
            self._reference,
            step.groups_of(types),
            frozenset(
                table.name
                for tables in self.bags.nodes.values()
                for table in tables
                if len(tables) > 1
            ),
        )
        cost.prepare(self.tables, types, tiers)
        return cost

    def _typical_parts(self) -> tuple[step.Part, ...]:
        """Return tables such as a rank has: spread evenly by what they move."""
        tables = sorted(self.tables, key=lambda t: (t.dim * t.pooling, t.rows, t.name))
        count = max(2, round(len(tables) / self.world.ranks))
        places = [int((n + 0.5) * len(tables) / count) for n in range(count)]
        chosen = [tables[place] for place in places]
        return tuple(step.Part(t.rows, t.dim, t.pooling, t.popularity) for t in chosen)

    @property
    def _memory(self) -> step.MemoryNeed:
        kind, trains = self.request.optimizer or "sgd", self.request.mode == TRAINING
        states = OPTIMIZER_STATES.get(kind, ()) if trains else ()
        return step.MemoryNeed(
            state_elements=states.count("element"),
            state_rows=states.count("row"),
            batch=self.samples * self.world.ranks,
            index_bytes=self._first.ops.index_type.bits // 8,
            row_bytes=4.0,
        )

    def _reference_plan(self, groups: frozenset[str]) -> dict[str, passes.Placement]:
        """Place the tables in turn: each sharding group has some, on the first rank."""
        ways = sorted(groups, key=step.SHARDING_GROUPS.index)
        order = sorted(self.tables, key=lambda t: (-t.dim * t.pooling, t.name))
        counts = dict.fromkeys(ways, 0)
        found: dict[str, passes.Placement] = {}
        for number, table in enumerate(order):
            way = ways[number % len(ways)]
            nodes = self.world.nodes if way == "table_row_wise" else self.world.ranks
            places = () if way == "row_wise" else (counts[way] % nodes,)
            counts[way] += 1
            found[table.name] = passes.Placement(way, places)
        return found

    def _reference(
        self, cost: step.PhysicalCost, groups: frozenset[str]
    ) -> step.Reference:
        first, plan, rank = self._first, self._reference_plan(groups), 0
        if groups == frozenset(step.SHARDING_GROUPS[:1]):
            rank, report = first.rank, first.report
        else:
            report = self.report(plan, only=rank)
        results = report.results
        loads = np.zeros((self.world.ranks, len(cost.resources)))
        for table in self.tables:
            for shard in cost.shards(table, plan[table.name]):
                loads[shard.rank] += shard.loads
        durations_s = results.schedule.duration_s
        return step.Reference(
            results.graphs[0], results.timeline, durations_s, loads, rank
        )


@attrs.frozen(eq=False)
class _First:
    """A first step, which tells what the rest of a step takes.

    Attributes:
        plan: Where tables were.
        rank: Whose step it is.
        report: What it takes.
        ops: Its lookup and its update.

    """

    plan: passes.Plan
    rank: int
    report: Report
    ops: step.LookupOps


def _busiest(plan: passes.Plan, tables: Sequence[Table]) -> int:
    """Return the rank that looks most up; the tables are whole."""
    sums: dict[int, float] = {}
    for table in tables:
        (rank,) = plan[table.name].places
        sums[rank] = sums.get(rank, 0.0) + table.dim * table.pooling
    return max(sums, key=lambda rank: (sums[rank], -rank))


def _graph(results: Results) -> Graph:
    found = results.program.classes[0].ops
    if found is None:
        msg = f"{results.program} has no op graph"
        raise UnsupportedModelError(msg)
    return found


def world_of(target: Target, ranks: int) -> passes.World:
    """Return the ranks on the nodes of a machine."""
    system = target.once(assumed_system)
    return passes.World(ranks, min(ranks, system.gpus_per_node))
