"""What parts of tables take: their look-ups and updates, by perfc's own cost models.

A rank looks all its tables up in one kernel, and updates them in some thirty. What one
table more adds is told by kernels over so many copies of it as a rank has tables:

    part = (price of the copies - price of next to nothing) / copies
    rank = price of next to nothing + the sum over its parts

The ops are lowered and priced as those of a whole model are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from perfc.costmodels import Target
from perfc.ir import (
    DTYPES,
    AttrValue,
    DType,
    Graph,
    Node,
    Program,
    RankClass,
    Record,
    Scenario,
    TensorType,
    Value,
    VerifyError,
    state_types,
)
from perfc.passes import (
    KERNEL_COST,
    LAUNCHES,
    KernelCost,
    LowerKernels,
    PassManager,
    ShapeInference,
)

_LENGTHS = DTYPES["i32"]
_LEAST = 2
"""Copies at least: the lists of one table need no sorting."""


@attrs.frozen
class Part:
    """A part of a table, as a rank has it.

    Attributes:
        rows: Its rows.
        dim: Its columns.
        pooling: Rows of it that a bag sums up.
        popularity: How look-ups spread over its rows.

    """

    rows: int
    dim: int
    pooling: float
    popularity: str = "uniform"

    def record(self) -> Record:
        """Describe it as `embedding_bag` wants it."""
        whole = float(self.pooling).is_integer()
        found: dict[str, AttrValue] = {
            "rows": self.rows,
            "dim": self.dim,
            "pooling": int(self.pooling) if whole else self.pooling,
        }
        if self.popularity != "uniform":
            found["popularity"] = self.popularity
        return Record(found)


_NOTHING = Part(1, 4, 1.0)
"""The least that a kernel can be asked for."""


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

    lookup: Node
    update: Node | None
    index_type: DType
    table_type: DType

    @classmethod
    def of(cls, graph: Graph) -> LookupOps:
        """Find them.

        Raises:
            VerifyError: the rank has no tables of its own.

        """
        for node in graph:
            if node.op == "embedding_bag" and _is_dealt(node):
                count = len(node.attributes.records("tables"))
                types = [_type(v) for v in node.operands]
                updates = (
                    n
                    for n in graph
                    if n.op == "embedding_bag_backward" and _is_dealt(n)
                )
                return cls(
                    node, next(updates, None), types[count].dtype, types[0].dtype
                )
        msg = f"{graph} looks up no tables that were dealt to it"
        raise VerifyError(msg)


@attrs.frozen(eq=False)
class PartPrices:
    """Prices parts, on one target.

    Attributes:
        ops: The ops that look them up.
        target: The device.
        batch: Bags of a table: the samples of all ranks.
        ranks: From how many ranks bags come.
        copies: Tables of a rank, about; at least two.

    """

    ops: LookupOps
    target: Target
    batch: int
    ranks: int
    copies: int

    def idle(self) -> PartPrice:
        """Return what kernels over next to nothing take."""
        return attrs.evolve(self, batch=1, copies=_LEAST).totals([_NOTHING])[0]

    def of(self, parts: Sequence[Part]) -> Mapping[Part, PartPrice]:
        """Return what each part adds to the rank that has it."""
        distinct = list(dict.fromkeys(parts))
        if not distinct:
            return {}
        idle = self.idle()
        return {
            part: PartPrice(
                max(0.0, found.lookup_s - idle.lookup_s) / self.copies,
                max(0.0, found.update_s - idle.update_s) / self.copies,
            )
            for part, found in zip(distinct, self.totals(distinct), strict=True)
        }

    def totals(self, parts: Sequence[Part]) -> list[PartPrice]:
        """Return the prices of kernels over copies of each part, floors and all."""
        graph = Graph("parts")
        for number, part in enumerate(parts):
            self._write(graph, part, str(number))
        program = Program(name="parts", classes=(RankClass((0,), ops=graph),))
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
            for n in range(len(parts))
        ]

    def _write(self, graph: Graph, part: Part, number: str) -> None:
        """Append the ops over copies of one part."""
        bags, count = self.batch * self.copies, self.copies
        indices = max(1, round(self.batch * part.pooling)) * count
        lengths = graph.add_input(f"lengths.{number}", TensorType(_LENGTHS, (bags,)))
        listed = TensorType(self.ops.index_type, (indices,))
        given = graph.add_input(f"indices.{number}", listed)
        regroup = Record({"ranks": self.ranks, "features": count})
        name = f"input.{number}"
        regrouped = graph.add(
            "regroup_bags", (lengths, given), (name, f"{name}.offsets"), regroup
        )
        table = TensorType(self.ops.table_type, (part.rows, part.dim))
        weight = graph.add_parameter(f"table.{number}", table)
        records = (part.record(),) * count
        lists = regrouped.results
        graph.add(
            "embedding_bag",
            (*(weight,) * count, *lists),
            (f"lookup.{number}",),
            self.ops.lookup.attributes.updated(tables=records),
        )
        if self.ops.update is not None:
            self._write_update(graph, weight, lists, number)

    def _write_update(
        self, graph: Graph, weight: Value, lists: Sequence[Value], number: str
    ) -> None:
        update, table, count = self.ops.update, _type(weight), self.copies
        if update is None:
            return
        rows = _type(update.operands[0])
        pooled = attrs.evolve(rows, shape=(self.batch, table.shape[1] * count))
        grad = graph.add_input(f"grad.{number}", pooled)
        records = graph_records(graph, number)
        kind = update.attributes.text("optimizer", "")
        states: list[Value] = []
        for place, type_ in enumerate(state_types(kind, table)):
            state = graph.add_state(f"state.{number}.{place}", type_)
            states += [state] * count
        graph.add(
            "embedding_bag_backward",
            (grad, *lists, *(weight,) * count, *states),
            (),
            update.attributes.updated(tables=records),
            location=attrs.evolve(update.location, name=f"update.{number}"),
        )


def graph_records(graph: Graph, number: str) -> tuple[Record, ...]:
    """Return the tables of a look-up that has been written."""
    producer = graph.value(f"lookup.{number}").producer
    return () if producer is None else producer.attributes.records("tables")


def _is_dealt(node: Node) -> bool:
    sharding = node.attributes.records("tables")[0].get("sharding")
    return sharding not in (None, "data_parallel")


def _type(value: Value) -> TensorType:
    if value.type is None:
        msg = f"{value} has no type"
        raise VerifyError(msg)
    return value.type
