"""What parts of tables take: their lookups and updates, by perfc's own cost models.

A rank looks all its tables up in one kernel, and updates them in some thirty; memory,
cache or latency bounds each of these over all tables together. So a part is priced
among others, such as a rank has:

    part = price of (some others + the part) - price of the others
    rank = what is left of the others without their parts + the sum over its parts

The ops are lowered and priced as those of a whole model are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

import attrs

from perfc import ir
from perfc.costmodels import Target
from perfc.ir import node_kinds
from perfc.ir.annotations import Scenario
from perfc.ir.ops.optimizer import state_types
from perfc.ir.program import RankClass
from perfc.ir.support import VerifyError
from perfc.passes import (
    HBM,
    KERNEL_COST,
    LAUNCHES,
    KernelCost,
    LowerKernels,
    PassManager,
    ShapeInference,
)
from perfc.passes.embeddings import in_tier

_LENGTHS = ir.DTYPES["i32"]


@attrs.frozen
class Part:
    """A part of a table, as a rank has it.

    Attributes:
        rows: Its rows.
        dim: Its columns.
        pooling: Rows of it that a bag sums up.
        popularity: How lookups spread over its rows.
        tier: Where its rows lie.
        cache: Share of the rows that a cache holds; 0 where the tier has none.

    """

    rows: int
    dim: int
    pooling: float
    popularity: str = "uniform"
    tier: str = HBM
    cache: float = 0.0

    def bytes(self, element_bytes: float) -> float:
        """Return the bytes of its rows."""
        return self.rows * self.dim * element_bytes

    def record(self) -> ir.Record:
        """Describe it as `embedding_bag` wants it."""
        whole = float(self.pooling).is_integer()
        found: dict[str, ir.AttrValue] = {
            "rows": self.rows,
            "dim": self.dim,
            "pooling": int(self.pooling) if whole else self.pooling,
        }
        if self.popularity != "uniform":
            found["popularity"] = self.popularity
        return in_tier(ir.Record(found), self.tier, self.cache)

    def among(self, others: Sequence[Part]) -> tuple[Part, ...]:
        """Return *others* in its own tier: kernels wait for the slowest one."""
        return tuple(
            attrs.evolve(one, tier=self.tier, cache=self.cache) for one in others
        )


@attrs.frozen
class PartPrice:
    """Seconds on a device.

    Attributes:
        lookup_s: Lists of bags sorted by table, and rows looked up.
        update_s: Gradients, and rows and states updated; 0 in inference.

    """

    lookup_s: float
    update_s: float


@attrs.frozen(eq=False)
class LookupOps:
    """The ops of a rank's tables in a model, whose like is priced.

    Attributes:
        lookup: The `embedding_bag`.
        update: The `embedding_bag_backward` that applies the optimizer; None in
            inference.
        index_type: Element type of indices.
        table_type: The same of tables.

    """

    lookup: ir.Node
    update: ir.Node | None
    index_type: ir.DType
    table_type: ir.DType

    @classmethod
    def of(cls, graph: ir.Graph) -> LookupOps:
        """Find them."""
        for node in graph:
            if node_kinds.is_embedding_bag(node) and _is_sharded(node):
                count = len(node.attributes.records("tables"))
                types = [_type(v) for v in node.operands]
                updates = (
                    n
                    for n in graph
                    if n.op == "embedding_bag_backward" and _is_sharded(n)
                )
                return cls(
                    node, next(updates, None), types[count].dtype, types[0].dtype
                )
        msg = f"{graph} looks up no sharded tables"
        raise VerifyError(msg)


@attrs.frozen(eq=False)
class PartPrices:
    """Prices parts, on one target.

    Attributes:
        ops: The ops that look them up.
        target: The device.
        batch: Bags of a table: the samples of all ranks.
        ranks: From how many ranks bags come.
        others: Parts such as a rank has, at least two, in device memory.

    """

    ops: LookupOps
    target: Target
    batch: int
    ranks: int
    others: tuple[Part, ...]

    @functools.cached_property
    def _known(self) -> dict[tuple[Part, ...], tuple[PartPrice, PartPrice]]:
        return {}

    def _base(self, others: tuple[Part, ...]) -> tuple[PartPrice, PartPrice]:
        """Return the price of others, and the sum of what they add, each on its own."""
        if others not in self._known:
            among, *totals = self._totals(
                [others, *((*others, part) for part in others)]
            )
            margins = [_more(total, among) for total in totals]
            lookup_s = math.fsum(part.lookup_s for part in margins)
            added = PartPrice(lookup_s, math.fsum(part.update_s for part in margins))
            self._known[others] = among, added
        return self._known[others]

    def idle(self, like: Part | None = None) -> PartPrice:
        """Return the price of a rank besides what its parts add.

        Args:
            like: A part of the tier that its tables are in; device memory if none.

        """
        among, added = self._base(like.among(self.others) if like else self.others)
        return _more(among, added)

    def of(self, parts: Sequence[Part]) -> Mapping[Part, PartPrice]:
        """Return the price that each part adds to the rank that has it.

        One part more may be what another pass of a sort begins with: parts do not add
        more than the others take together.
        """
        found: dict[Part, PartPrice] = {}
        distinct = list(dict.fromkeys(parts))
        groups = [part.among(self.others) for part in distinct]
        totals = self._totals(
            [(*others, part) for others, part in zip(groups, distinct, strict=True)]
        )
        for part, others, total in zip(distinct, groups, totals, strict=True):
            among, added = self._base(others)
            more = _more(total, among)
            found[part] = PartPrice(
                more.lookup_s * _at_most_one(among.lookup_s, added.lookup_s),
                more.update_s * _at_most_one(among.update_s, added.update_s),
            )
        return found

    def _totals(self, ranks: Sequence[tuple[Part, ...]]) -> list[PartPrice]:
        """Return the prices of the kernels of ranks, by their parts."""
        if not ranks:
            return []
        graph = ir.Graph("parts")
        weights = {
            part: graph.add_parameter(
                f"table.{number}",
                ir.TensorType(self.ops.table_type, (part.rows, part.dim)),
            )
            for number, part in enumerate(dict.fromkeys(p for r in ranks for p in r))
        }
        for number, parts in enumerate(ranks):
            tables = [weights[part] for part in parts]
            self._write(graph, parts, tables, str(number))
        program = ir.Program(name="parts", classes=(RankClass((0,), ops=graph),))
        passes = (ShapeInference(), LowerKernels(inputs="device"), KernelCost())
        scenario = Scenario(self.target.name, self.target.spec_sha256, "eager", (), "")
        analysis = PassManager(passes).run(program, self.target, scenario)
        (launches,), (cost,) = analysis.get(LAUNCHES), analysis.get(KERNEL_COST)
        seconds: dict[str, float] = {}
        for task, kernel in enumerate(launches.kernel):
            if kernel >= 0:
                node = launches.ops[launches.op[task]].node
                seconds[node] = seconds.get(node, 0.0) + float(cost.seconds[kernel])
        return [
            PartPrice(
                seconds.get(f"input.{n}", 0.0) + seconds.get(f"lookup.{n}", 0.0),
                seconds.get(f"update.{n}", 0.0),
            )
            for n in range(len(ranks))
        ]

    def _write(
        self,
        graph: ir.Graph,
        parts: Sequence[Part],
        tables: Sequence[ir.Value],
        number: str,
    ) -> None:
        """Append the ops of a rank."""
        bags = self.batch * len(parts)
        indices = sum(max(1, round(self.batch * part.pooling)) for part in parts)
        lengths = graph.add_input(f"lengths.{number}", ir.TensorType(_LENGTHS, (bags,)))
        listed = ir.TensorType(self.ops.index_type, (indices,))
        given = graph.add_input(f"indices.{number}", listed)
        lists = graph.add(
            "regroup_bags",
            (lengths, given),
            (f"input.{number}", f"offsets.{number}"),
            ir.Record({"ranks": self.ranks, "features": len(parts)}),
        ).results
        records = tuple(part.record() for part in parts)
        graph.add(
            "embedding_bag",
            (*tables, *lists),
            (f"lookup.{number}",),
            self.ops.lookup.attributes.updated(tables=records),
        )
        update = self.ops.update
        if update is None:
            return
        width = sum(part.dim for part in parts)
        pooled = attrs.evolve(_type(update.operands[0]), shape=(self.batch, width))
        grad = graph.add_input(f"grad.{number}", pooled)
        states = self._states(graph, update, tables, number)
        graph.add(
            "embedding_bag_backward",
            (grad, *lists, *tables, *states),
            (),
            update.attributes.updated(tables=records),
            location=attrs.evolve(update.location, name=f"update.{number}"),
        )

    def _states(
        self, graph: ir.Graph, update: ir.Node, tables: Sequence[ir.Value], number: str
    ) -> list[ir.Value]:
        """Declare the states of an optimizer, list by list."""
        types = [
            state_types(update.attributes.text("optimizer", ""), _type(table))
            for table in tables
        ]
        return [
            graph.add_state(f"state.{number}.{place}.{at}", own[place])
            for place in range(len(types[0]))
            for at, own in enumerate(types)
        ]


def _more(whole: PartPrice, part: PartPrice) -> PartPrice:
    return PartPrice(
        max(0.0, whole.lookup_s - part.lookup_s),
        max(0.0, whole.update_s - part.update_s),
    )


def _at_most_one(part: float, whole: float) -> float:
    return min(1.0, part / whole) if whole > 0 else 1.0


def _is_sharded(node: ir.Node) -> bool:
    sharding = node.attributes.records("tables")[0].get("sharding")
    return sharding not in (None, "data_parallel")


def _type(value: ir.Value) -> ir.TensorType:
    if value.type is None:
        msg = f"{value} has no type"
        raise VerifyError(msg)
    return value.type
