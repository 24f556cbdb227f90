"""Embedding tables of a graph, the parts that they are cut into, and who has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

import attrs

from perfc import ir
from perfc.costmodels import parse_popularity
from perfc.ir import node_kinds
from perfc.ir.dims import Dim, ceil_div, floor_div, total
from perfc.ir.ops.embedding import bags
from perfc.ir.support import UnsupportedModelError
from perfc.passes import graphs
from perfc.passes.embeddings.sharding_plan import Placement, TableSize, World


@attrs.frozen(eq=False)
class EmbeddingTable:
    """One table that a bag of the graph looks up.

    Attributes:
        name: Its parameter, without `.weight`.
        weight: The parameter.
        record: Its sizes, as `embedding_bag` has them.
        lookups: Indices of all its bags on one rank.

    """

    name: str
    weight: ir.Value
    record: ir.Record
    lookups: Dim

    @property
    def rows(self) -> int:
        """Rows."""
        return self.record.integer("rows")

    @property
    def dim(self) -> int:
        """Columns."""
        return self.record.integer("dim")

    @property
    def pooling(self) -> float:
        """Mean rows of a bag; 1 where the model leaves it open."""
        found = self.record.get("pooling", 1)
        return found if isinstance(found, int | float) else 1.0

    @property
    def size(self) -> TableSize:
        """What plans are made by."""
        return TableSize(self.name, self.dim, self.dim * self.pooling)


LookupNodes: TypeAlias = Mapping[ir.Node, Sequence[EmbeddingTable]]
"""Lookups, with the tables of each."""


@attrs.frozen(eq=False)
class Bags:
    """The lookups of a graph that can be sharded: they are alike.

    Attributes:
        nodes: The lookups, with the tables of each.
        batch: Bags of each table on one rank: its samples, or, deduplicated, how many
            of their lists differ.

    """

    nodes: Mapping[ir.Node, tuple[EmbeddingTable, ...]]
    batch: Dim

    @classmethod
    def of(cls, graph: ir.Graph) -> Bags:
        """Find them, where all have as many bags."""
        lots = cls.lots(graph)
        if len(lots) > 1:
            raise _unlike(graph)
        return lots[0]

    @classmethod
    def lots(cls, graph: ir.Graph) -> list[Bags]:
        """Find them, those together that have as many bags."""
        inputs, weights = frozenset(graph.inputs), frozenset(graph.parameters)
        uses = Counter(value for node in graph for value in node.operands)
        found = {
            node: tuple(_tables(node, inputs, weights, uses))
            for node in graph
            if node_kinds.is_embedding_bag(node)
        }
        if not found:
            msg = f"{graph} has no embedding bags: there are no tables to shard"
            raise UnsupportedModelError(msg)
        _check(graph, found)
        lots: dict[object, dict[ir.Node, tuple[EmbeddingTable, ...]]] = {}
        for node, tables in found.items():
            key = bags_of(node), node.attributes.get("distinct")
            lots.setdefault(key, {})[node] = tables
        return [cls(lot, bags_of(next(iter(lot)))) for lot in lots.values()]

    @property
    def distinct(self) -> bool:
        """Whether some lists were left out."""
        return self.first.attributes.get("distinct") is not None

    @property
    def samples(self) -> Dim:
        """Samples of a rank."""
        if not self.distinct:
            return self.batch
        return self.first.attributes.dims("distinct")[0]

    @property
    def share(self) -> tuple[int, int]:
        """Share of the samples' lists that is left, as a quotient."""
        if not self.distinct:
            return 1, 1
        _, part, whole = self.first.attributes.dims("distinct")
        return int(str(part)), int(str(whole))

    @property
    def filled(self) -> dict[str, ir.AttrValue]:
        """What an exchange is told of bags that are none on average."""
        if not self.distinct:
            return {}
        part, whole = self.share
        return {"filled": (self.samples * part, self.batch * whole)}

    def bytes_of(self, numbers: int, item: int) -> Dim:
        """Return the bytes of so many numbers of each bag.

        Sizes are of whole bags, but what is sent of them on average is not rounded up.
        """
        part, whole = self.share
        return floor_div(self.samples * part * numbers * item, whole)

    @property
    def tables(self) -> list[EmbeddingTable]:
        """All tables, in the order of their lookups."""
        return [table for tables in self.nodes.values() for table in tables]

    @property
    def first(self) -> ir.Node:
        """The first lookup: the others are like it."""
        return next(iter(self.nodes))

    @property
    def index_type(self) -> ir.DType:
        """Element type of the indices."""
        node = self.first
        return graphs.typed(node.operands[len(self.nodes[node])]).dtype


def _check(graph: ir.Graph, found: LookupNodes) -> None:
    """Refuse lookups that cannot be sharded together."""
    if len({_alike(node) for node in found}) > 1:
        raise _unlike(graph)
    names = Counter(table.name for tables in found.values() for table in tables)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        msg = f"table {twice[0]!r} is looked up more than once"
        raise UnsupportedModelError(msg)


def _unlike(graph: ir.Graph) -> UnsupportedModelError:
    msg = f"{graph} looks up its tables in several ways; they must be alike"
    return UnsupportedModelError(msg)


def _tables(
    node: ir.Node,
    inputs: AbstractSet[ir.Value],
    parameters: AbstractSet[ir.Value],
    uses: Mapping[ir.Value, int],
) -> Iterator[EmbeddingTable]:
    """Yield the tables of a lookup."""
    attributes = node.attributes
    records = attributes.records("tables")
    weights, rest = node.operands[: len(records)], node.operands[len(records) :]
    problem = ""
    if attributes.text("mode") == "max":
        problem = "takes the largest row of a bag, not a sum"
    elif attributes.flag("weighted"):
        problem = "has weights of samples"
    elif attributes.get("padding_index") is not None:
        problem = "has a padding index"
    elif any(v not in inputs or uses[v] > 1 for v in rest):
        problem = "computes its indices, or shares them: they must be inputs"
    elif any(uses[v] > 1 or v not in parameters for v in weights):
        problem = "shares its tables with another op"
    if problem:
        msg = f"{node} {problem}; it cannot be sharded"
        raise UnsupportedModelError(msg)
    for weight, record, lookups in zip(
        weights, records, lookups_of_tables(node), strict=True
    ):
        yield EmbeddingTable(
            weight.name.removesuffix(".weight"), weight, record, lookups
        )


def lookups_of_tables(node: ir.Node) -> list[Dim]:
    """Return how many indices each table gets: by its pooling, or all alike."""
    records = node.attributes.records("tables")
    indices: Dim = graphs.typed(node.operands[len(records)]).numel
    poolings = [record.get("pooling") for record in records]
    known = [p for p in poolings if isinstance(p, int) and not isinstance(p, bool)]
    batch = bags_of(node)
    if len(known) == len(records) and total(batch * p for p in known) == indices:
        return [batch * pooling for pooling in known]
    return [floor_div(indices, len(records))] * len(records)


def bags_of(node: ir.Node) -> Dim:
    """Return how many bags a lookup has of each of its tables."""
    return bags(node.attributes, [graphs.typed(value) for value in node.operands])


def _alike(node: ir.Node) -> tuple[object, ...]:
    """Return the properties that lookups share that are done together."""
    count = len(node.attributes.records("tables"))
    weights = {graphs.typed(value).dtype for value in node.operands[:count]}
    kept = ("mode", "popularity", "out_dtype")
    indices = graphs.typed(node.operands[count]).dtype
    described = tuple(node.attributes.get(name) for name in kept)
    return (frozenset(weights), indices, *described)


@attrs.frozen(eq=False)
class Shard:
    """A part of a table, as one rank has it.

    Attributes:
        table: Of which it is a part.
        part: Which part of its columns.
        parts: Into how many they are cut.
        among: Ranks that share its rows.

    """

    table: EmbeddingTable
    part: int = 0
    parts: int = 1
    among: int = 1

    @property
    def type(self) -> ir.TensorType:
        """The rows and columns that a rank has: of shared rows as many as any."""
        rows = ceil_div(self.table.rows, self.among)
        dtype = graphs.typed(self.table.weight).dtype
        return ir.TensorType(dtype, (rows, self.dim))

    @property
    def dim(self) -> int:
        """Its columns."""
        return self.table.dim // self.parts

    def record(self, kind: str) -> ir.Record:
        """Describe it as `embedding_bag` wants it; a rank looks up its share."""
        rows, dim = self.type.shape
        pooling = self.table.record.get("pooling")
        if isinstance(pooling, int | float) and pooling % self.among == 0:
            pooling = pooling // self.among
        elif isinstance(pooling, int | float):
            pooling = pooling / self.among
        changed = self.table.record.updated(rows=rows, dim=dim, sharding=kind)
        if "popularity" in changed and self.among > 1:
            whole = parse_popularity(changed.text("popularity"))
            changed = changed.updated(popularity=str(whole.part(self.among)))
        return changed if pooling is None else changed.updated(pooling=pooling)

    @property
    def key(self) -> tuple[object, ...]:
        """What tells its work from that of others."""
        table = self.table
        return (self.type, table.record, table.lookups, self.parts, self.among)


@attrs.frozen(eq=False)
class ShardingGroup:
    """Shards that share one input and one output exchange: those of a sharding type.

    Attributes:
        name: What it is called: the sharding type.
        among: Ranks of a place: they share rows.
        places: The shards of each place, in order.

    """

    name: str
    among: int
    places: tuple[tuple[Shard, ...], ...]

    @property
    def ranks(self) -> int:
        """Ranks of all places."""
        return self.among * len(self.places)

    @property
    def shards(self) -> list[Shard]:
        """All shards, place by place: the order of features in all exchanges."""
        return [shard for shards in self.places for shard in shards]


def sharding_groups(
    tables: Sequence[EmbeddingTable], plan: Mapping[str, Placement], world: World
) -> list[ShardingGroup]:
    """Sort the shards of all tables by how and where they go."""
    ways = (
        ("table_wise", ("table_wise", "column_wise"), world.ranks, 1),
        ("row_wise", ("row_wise",), 1, world.ranks),
        (
            "table_row_wise",
            ("table_row_wise", "grid_shard"),
            world.nodes,
            world.per_node,
        ),
    )
    found: list[ShardingGroup] = []
    for name, kinds, places, among in ways:
        shards: list[list[Shard]] = [[] for _ in range(places)]
        for table in tables:
            placement = plan[table.name]
            if placement.kind in kinds:
                _assign(table, placement.places or (0,), among, shards)
        if any(shards):
            found.append(ShardingGroup(name, among, tuple(map(tuple, shards))))
    return found


def _assign(
    table: EmbeddingTable, places: Sequence[int], among: int, shards: list[list[Shard]]
) -> None:
    for part, place in enumerate(places):
        shards[place].append(Shard(table, part, len(places), among))
