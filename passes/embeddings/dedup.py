"""The pass `dedup`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import attrs

from perfc import ir
from perfc.costmodels.locality import as_quotient
from perfc.ir.dims import Dim, ceil_div, floor_div, total
from perfc.ir.location import Location
from perfc.ir.node_kinds import is_embedding_bag
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.support import UnsupportedModelError
from perfc.passes import graphs
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.embeddings import session_groups
from perfc.passes.embeddings.sharded_tables import bags_of, lookups_of_tables
from perfc.passes.facts import TYPED
from perfc.passes.shapes import Inference

_INVERSE = ir.DTYPES["i32"]


@attrs.frozen
class Dedup(Transform):
    """Look lists up once that samples of a session repeat, as RecD does.

    A batch holds sessions, one behind the other. Of each group of features the lists
    that differ from those of the sample before are sent, looked up and sent back;
    then an `index_select` by the inverse index of the group, which is copied in, gives
    every sample its rows, and gradients go back by `index_add_`. The rows that a step
    touches are the same with and without it.

    It runs before `shard-embeddings` and `training`, so that the rows are expanded
    where their samples are: behind the all-to-all.

    Attributes:
        session: Mean samples of a session inside a batch, S; 1 in a shuffled one.
        stay: Probability that the lists of a feature stay from one sample of a session
            to the next, as `user.*:0.95,item:0.1`; what a pattern matches is a group,
            and it is the probability that all of its lists stay.
        groups: Which features have an inverse index in common, as `a+b;c.*`, if not
            those of each entry of `stay`.
        apply: Whether lists are deduplicated; else lookups are only told that lists
            repeat, whose rows are then found in caches: what a step without it takes.

    """

    name: ClassVar[str] = "dedup"
    phase: ClassVar[Phase] = Phase.FORWARD
    requires: ClassVar[frozenset[ir.AnyKey]] = frozenset({TYPED})
    runs_before: ClassVar[frozenset[str]] = frozenset({"shard-embeddings", "training"})
    runs_after: ClassVar[frozenset[str]] = frozenset({"batch-embeddings"})

    session: float
    stay: str
    groups: str = ""
    apply: bool = True

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        session_groups.check_session(self.session, f"session of {self.name} is ")
        session_groups.read_stays(self.stay)

    def run(self, program: ir.Program, ctx: PassContext) -> None:
        """Deduplicate the lookups of a forward pass."""
        found = self.found(program)
        # Refuse tables that ranks hold already, whose lists come from all of them.
        if sum(len(rank.ranks) for rank in program.classes) > 1:
            msg = (
                f"the tables of group {found[0].name!r} are on several ranks already, "
                "whose lists have no inverse index in common: dedup comes before the "
                "tables are sharded"
            )
            raise UnsupportedModelError(msg)
        graph = graphs.forward_graph_of(program, self.name)
        lots = [_Lot.of(graph, group, number) for number, group in enumerate(found)]
        for group in found:
            share = f"{group.kept:.4g} of the lists of {len(group.tables)} tables"
            ctx.note("dedup", f"{group.name}: {share} are kept", group.name)
        if not self.apply:
            _tell_repeats(graph, found)
            return
        _Writer(graph, lots).write()

    def found(self, program: ir.Program) -> list[session_groups.FeatureGroup]:
        """Return the groups of a model."""
        known = graphs.table_names(graphs.table_lookups(program))
        stays = session_groups.read_stays(self.stay)
        return session_groups.feature_groups(self.session, stays, self.groups, known)


def _tell_repeats(
    graph: ir.Graph, groups: Sequence[session_groups.FeatureGroup]
) -> None:
    kept = {table: group.kept for group in groups for table in group.tables}

    def told(name: str, table: ir.Record) -> ir.Record:
        share = kept.get(name, 1.0)
        return table if share == 1 else table.updated(kept=share)

    nodes = [(graph, node) for node in graph if is_embedding_bag(node)]
    graphs.change_tables(nodes, told)


def _tables_of(node: ir.Node) -> list[str]:
    weights = node.operands[: len(node.attributes.records("tables"))]
    return [value.name.removesuffix(".weight") for value in weights]


@attrs.frozen(eq=False)
class _Lot:
    """A group, as the graph looks it up.

    Attributes:
        group: The group.
        number: Which of the groups it is.
        samples: Bags of each of its tables.

    """

    group: session_groups.FeatureGroup
    number: int
    samples: Dim

    @classmethod
    def of(
        cls, graph: ir.Graph, group: session_groups.FeatureGroup, number: int
    ) -> _Lot:
        """Find its lookups."""
        nodes = [n for n in graph if is_embedding_bag(n)]
        nodes = [n for n in nodes if not set(_tables_of(n)).isdisjoint(group.tables)]
        for node in nodes:
            _check(graph, node, group)
        sizes = {str(bags_of(node)): node for node in nodes}
        if len(sizes) > 1:
            (one, first), (other, second), *_ = sizes.items()
            msg = (
                f"group {group.name!r} has no inverse index in common: {first} looks "
                f"{one} bags up, {second} {other}; give each a group of its own"
            )
            raise UnsupportedModelError(msg)
        return cls(group, number, bags_of(nodes[0]))

    @property
    def quotient(self) -> tuple[int, int]:
        """Share of the lists that are kept."""
        return as_quotient(self.group.kept)

    @property
    def kept(self) -> Dim:
        """Bags that are kept, rounded up."""
        part, whole = self.quotient
        return self.samples if part == whole else ceil_share(self.samples, part, whole)

    @property
    def distinct(self) -> dict[str, ir.AttrValue]:
        """What a lookup is told of how many there are on average."""
        part, whole = self.quotient
        return {} if part == whole else {"distinct": (self.samples, part, whole)}

    def lookups(self, of_all: Dim) -> Dim:
        """Return how many lookups of so many of a table are left."""
        part, whole = self.quotient
        if part == whole:
            return of_all
        each = floor_div(of_all, self.samples)
        if each * self.samples == of_all:
            return each * self.kept
        return ceil_share(of_all, part, whole)


def ceil_share(count: Dim, part: int, whole: int) -> Dim:
    """Return a share of so many things, rounded up."""
    if isinstance(count, int):
        found: int = ceil_div(count * part, whole)
        return found
    return floor_div(count * part + (whole - 1), whole)


def _check(graph: ir.Graph, node: ir.Node, group: session_groups.FeatureGroup) -> None:
    """Refuse lookups whose lists cannot be told apart before they are looked up."""
    lists = node.operands[len(node.attributes.records("tables")) :]
    problem = ""
    if node.attributes.flag("weighted"):
        problem = "has weights of samples"
    elif any(v not in graph.inputs for v in lists):
        problem = "computes its indices: they must be inputs"
    elif not all(
        is_embedding_bag(other) and set(_tables_of(other)) <= set(group.tables)
        for v in lists
        for other in _others(graph, node, v)
    ):
        problem = f"shares its indices with what is not in group {group.name!r}"
    if problem:
        msg = f"{node} {problem}; its lists have no inverse index"
        raise UnsupportedModelError(msg)


def _others(graph: ir.Graph, node: ir.Node, value: ir.Value) -> list[ir.Node]:
    return [other for other in graph.readers(value) if other is not node]


@attrs.frozen(eq=False)
class _Part:
    """Lookups of some tables of a node, all of one group or of none.

    Attributes:
        node: The node in whose place they are.
        at: Places of the tables in it.
        pooled: The pooled rows of the bags that are looked up.

    """

    node: ir.Node
    at: tuple[int, ...]
    pooled: ir.Value

    @property
    def dims(self) -> tuple[int, ...]:
        """Columns of each table."""
        records = self.node.attributes.records("tables")
        return tuple(records[n].integer("dim") for n in self.at)


@attrs.define(eq=False)
class _Writer:
    """Puts lookups of lists that differ in the place of others.

    Attributes:
        graph: The forward pass.
        lots: The groups.

    """

    graph: ir.Graph
    lots: Sequence[_Lot]
    _lists_of: dict[tuple[ir.Value, tuple[Dim, ...]], ir.Value] = attrs.field(
        factory=dict["tuple[ir.Value, tuple[Dim, ...]]", ir.Value], init=False
    )
    _parts: dict[_Lot | None, list[_Part]] = attrs.field(
        factory=dict["_Lot | None", "list[_Part]"], init=False
    )

    def write(self) -> None:
        """Look up where the model begins to, expand before who reads rows first."""
        by_table = {table: lot for lot in self.lots for table in lot.group.tables}
        old = {
            node: [by_table.get(name) for name in _tables_of(node)]
            for node in self.graph
            if is_embedding_bag(node)
        }
        old = {node: lots for node, lots in old.items() if any(lots)}
        rows = {node.results[0] for node in old}
        readers = (n for n in self.graph if not rows.isdisjoint(n.operands))
        first, reader = next(iter(old)), next(readers, None)
        tape = graphs.Tape(self.graph, Inference(self.graph, BUILTIN_OPS), Location())
        tape.constants = "dedup"

        def step(node: ir.Node) -> None:
            if node is first:
                for each, lots in old.items():
                    self._look_up(tape, each, lots)
            if node is reader:
                self._expand(tape)

        self.graph.rewrite(step)
        if reader is None:
            self._expand(tape)
        self.graph.erase_dead(keep=lambda node: node not in old)
        lists = (v for node in old for v in node.operands[len(_tables_of(node)) :])
        self.graph.erase_unused_inputs(lists)

    def _look_up(
        self, tape: graphs.Tape, node: ir.Node, lots: Sequence[_Lot | None]
    ) -> None:
        """Look up the tables of a node, those of each group apart."""
        tape.stem, tape.location = node.name, node.location
        records = node.attributes.records("tables")
        for lot in dict.fromkeys(lots):
            at = tuple(n for n, own in enumerate(lots) if own is lot)
            operands = [node.operands[n] for n in at]
            operands += self._lists(node, lot, at)
            attributes: dict[str, ir.AttrValue] = dict(node.attributes)
            attributes["tables"] = tuple(records[n] for n in at)
            attributes |= {} if lot is None else lot.distinct
            pooled = tape.op("embedding_bag", *operands, **attributes)
            self._parts.setdefault(lot, []).append(_Part(node, at, pooled))

    def _lists(
        self, node: ir.Node, lot: _Lot | None, at: Sequence[int]
    ) -> Iterator[ir.Value]:
        """Declare the indices and offsets of some tables of a node."""
        each, old = lookups_of_tables(node), node.operands[len(_tables_of(node)) :]
        left = [each[n] if lot is None else lot.lookups(each[n]) for n in at]
        bags = bags_of(node) if lot is None else lot.kept
        indices, *offsets = old
        shape: tuple[Dim, ...] = (total(left),)
        if not offsets:
            shape = (bags, *graphs.typed(indices).shape[1:])
        yield self._declared(indices, shape)
        more = 1 if node.attributes.flag("include_last_offset") else 0
        for value in offsets:
            yield self._declared(value, (bags * len(at) + more,))

    def _declared(self, like: ir.Value, shape: tuple[Dim, ...]) -> ir.Value:
        """Declare a list in the place of another; once, where lookups share it."""
        key = like, shape
        if len(self.graph.readers(like)) == 1 or key not in self._lists_of:
            name = self.graph.fresh_name(f"{like.name}.distinct")
            type_ = attrs.evolve(graphs.typed(like), shape=shape)
            self._lists_of[key] = self.graph.add_input(name, type_)
        return self._lists_of[key]

    def _expand(self, tape: graphs.Tape) -> None:
        """Give every sample its rows, and those who read them."""
        columns: dict[ir.Node, dict[int, ir.Value]] = {}
        whole: dict[ir.Node, ir.Value] = {}
        for lot, parts in self._parts.items():
            pieces: Sequence[ir.Value] = [part.pooled for part in parts]
            if lot is not None:
                pieces = _expanded(tape, lot, parts)
            for part, piece in zip(parts, pieces, strict=True):
                if len(part.at) == len(_tables_of(part.node)):
                    whole[part.node] = piece
                    continue
                split = _split(tape, piece, part.dims)
                columns.setdefault(part.node, {}).update(
                    zip(part.at, split, strict=True)
                )
        for node, found in columns.items():
            tape.stem, tape.location = node.name, node.location
            ordered = [found[place] for place in sorted(found)]
            whole[node] = tape.op("concat", *ordered, axis=1)
        for node, value in whole.items():
            self.graph.replace_uses(node.results[0], value)


def _expanded(
    tape: graphs.Tape, lot: _Lot, parts: Sequence[_Part]
) -> Sequence[ir.Value]:
    """Take the rows of every sample by the inverse index; return those of each part."""
    node = parts[0].node
    module = node.location.module.rpartition(".")[0]
    tape.stem = f"dedup.{lot.number}"
    tape.location = attrs.evolve(node.location, module=module, name=tape.stem)
    type_ = ir.TensorType(_INVERSE, (lot.samples,))
    name = tape.graph.fresh_name(f"{tape.stem}.inverse")
    inverse = tape.graph.add_input(name, type_)
    joined = [part.pooled for part in parts]
    if len(joined) > 1:
        joined = [tape.op("concat", *joined, axis=1)]
    found = tape.op("gather", *joined, inverse, axis=0, atomic=True)
    return _split(tape, found, tuple(sum(part.dims) for part in parts))


def _split(
    tape: graphs.Tape, rows: ir.Value, sizes: tuple[int, ...]
) -> Sequence[ir.Value]:
    """View columns."""
    if len(sizes) == 1:
        return [rows]
    return tape.ops("split", len(sizes), rows, axis=1, sizes=sizes)
