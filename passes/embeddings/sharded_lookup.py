"""Writes the lookups of sharded tables as one rank runs them: TorchRec's.

The rank's samples are sent to the ranks that have the tables (`KJTAllToAll`), which
look up the samples of all ranks at once; where ranks share the rows of a table, what
each has found is added up (`PooledEmbeddingsReduceScatter`), and every rank gets the
rows of its samples (`PooledEmbeddingsAllToAll`), joined along the columns.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Protocol

import attrs

from perfc.ir import DTYPES, AttrValue, DType, Node, TensorType, Value
from perfc.ir.dims import Dim, floor_div, maximum, total
from perfc.ir.ops.wire import encoded
from perfc.passes import graphs
from perfc.passes.embeddings import sharded_tables
from perfc.passes.embeddings.codec import Codec


class SentLookups(Protocol):
    """Lookups whose rows ranks exchange: sent, then received."""

    def send(self) -> Value:
        """Write it up to the collective that brings the rows of this rank's samples."""
        ...

    def receive(self, got: Value) -> list[tuple[sharded_tables.Shard, Value]]:
        """Write the rest; return the pooled rows of each shard, [batch, dim]."""
        ...


LENGTHS = DTYPES["i32"]
"""Lengths of bags, as TorchRec sends them."""

_SPLITS = DTYPES["i64"]


@attrs.frozen(eq=False)
class Exchange:
    """One rank's side of a sharding group: input dist, lookup, output dist.

    Attributes:
        tape: Where it is written.
        bags: The lookups of the model.
        group: Which place has what.
        place: The place of this rank.
        codec: What pooled rows are on their way; None for what they are.
        functional: Whether the collective that brings rows is no request.
        fixed: Whether ranks know how much they get without telling each other.

    """

    tape: graphs.Tape
    bags: sharded_tables.Bags
    group: sharded_tables.ShardingGroup
    place: int
    codec: Codec | None
    functional: bool = False
    fixed: bool = False

    def send(self) -> Value:
        """Write it up to the collective that brings the rows of this rank's samples."""
        indices, offsets = self._distribute()
        sent, among = self.look_up(indices, offsets), len(self.group.places) > 1
        if self.group.among > 1 and self._own:
            # Add up what the ranks of this one's place have found.
            last, codec = len(self.group.places) == 1, self._codec_of_sums
            scattered = {**self._place(), **self._request(last=last)}
            coded = self._encoded(sent, codec)
            found = self.named("output").op("reduce_scatter", coded, **scattered)
            sent = found if last else self._decoded("quantize", found, codec)
        return self._exchanged(self._encoded(sent, self.codec)) if among else sent

    def receive(self, got: Value) -> list[tuple[sharded_tables.Shard, Value]]:
        """Write what follows; return the pooled rows of each shard, [batch, dim]."""
        among = len(self.group.places) > 1
        codec = self.codec if among else self._codec_of_sums
        got = self._decoded("dequantize", got, codec)
        if among:
            got = self._joined(got)
        shards = self.group.shards
        if len(shards) == 1:
            return [(shards[0], got)]
        sizes, tape = tuple(shard.dim for shard in shards), self.named("split")
        pieces = tape.ops("split", len(shards), got, axis=1, sizes=sizes)
        return list(zip(shards, pieces, strict=True))

    @property
    def _rows(self) -> DType:
        """Element type of pooled rows."""
        return graphs.typed(self.bags.first.results[0]).dtype

    @property
    def _codec_of_sums(self) -> Codec | None:
        return None if self.codec is None else self.codec.of_sums()

    def _encoded(self, sent: Value, codec: Codec | None) -> Value:
        """Make of rows what is sent."""
        if codec is None or codec.keeps(graphs.typed(sent).dtype):
            return sent
        return self.named("quantize").op("encode_rows", sent, **codec.attributes)

    def _decoded(self, what: str, got: Value, codec: Codec | None) -> Value:
        """Make rows of what was sent; a list, if ranks have exchanged it."""
        if codec is None or codec.keeps(self._rows):
            return got
        shape = graphs.typed(got).shape
        if len(self.group.places) > 1 and what == "dequantize":
            shape = (self.bags.batch * sum(self.widths),)
        own: dict[str, AttrValue] = {"dtype": self._rows, "shape": shape}
        return self.named(what).op("decode_rows", got, **codec.attributes, **own)

    @property
    def _own(self) -> Sequence[sharded_tables.Shard]:
        return self.group.places[self.place]

    def named(self, what: str) -> graphs.Tape:
        """Return the tape, for nodes of one part of the exchange."""
        tape = self.tape
        tape.stem = f"{self.group.name}.{what}"
        tape.location = attrs.evolve(tape.location, name=tape.stem)
        return tape

    def _distribute(self) -> tuple[Value, Value]:
        """Send the bags of this rank's samples to the tables; `KJTAllToAll`.

        The host learns how many indices come from an exchange of their numbers, for
        which it waits.
        """
        group, graph = self.group, self.tape.graph
        features = self.bags.batch * len(group.shards)
        of_all = total(shard.table.lookups for shard in group.shards)
        dtype = self.bags.index_type
        lengths = graph.add_input(
            graph.fresh_name(f"{group.name}.lengths"), TensorType(LENGTHS, (features,))
        )
        indices = graph.add_input(
            graph.fresh_name(f"{group.name}.indices"), TensorType(dtype, (of_all,))
        )
        if group.among > 1:
            bucketized = self.named("input").ops(
                "bucketize_bags", 2, lengths, indices, buckets=group.among
            )
            lengths, indices = bucketized
        if not self.fixed:
            self.exchange_splits(lengths)
        counts = [self.bags.batch * group.among * len(s) for s in group.places]
        wanted = [total(shard.table.lookups for shard in s) for s in group.places]
        lengths = self._distributed("lengths", lengths, counts)
        indices = self._distributed("indices", indices, wanted)
        if not self._own:
            return lengths, indices
        regrouped = self.named("input").ops(
            "regroup_bags",
            2,
            lengths,
            indices,
            ranks=group.ranks,
            features=len(self._own),
        )
        return regrouped[0], regrouped[1]

    def exchange_splits(self, lengths: Value) -> None:
        """Tell each rank how many lengths and indices it gets."""
        tape, ranks = self.named("splits"), self.group.ranks
        sums = tape.op("reduce", lengths, kind="sum", axes=(0,), keepdims=True)
        splits = tape.op("cast", sums, dtype=_SPLITS)
        listed = tape.op("tile", splits, tape.integers(2 * ranks))
        got = tape.op("all_to_all", listed, **self._all())
        tape.effect("item", (got,), f"{self.group.name}.splits.item")

    def _distributed(self, what: str, sent: Value, by_place: Sequence[Dim]) -> Value:
        """Send every place its part of a list of which all ranks have as much.

        Args:
            what: What is sent.
            sent: What this rank sends, to all places.
            by_place: What of it each place gets.

        """
        got = [
            floor_div(part * self.group.ranks, self.group.among) for part in by_place
        ]
        tape, shape = self.named(what), (got[self.place],)
        attributes = {**self._all(), **self._slowest(sent, got), **self.bags.filled}
        return tape.op("all_to_all", sent, shape=shape, **attributes)

    def _slowest(self, sent: Value, got: Sequence[Dim]) -> dict[str, AttrValue]:
        """Say how many bytes the slowest rank sends or gets, where ranks differ."""
        type_, batch = graphs.typed(sent), self.bags.batch
        amounts = dict.fromkeys((type_.numel, *got))
        if len(amounts) == 1 and not self.bags.distinct:
            return {}
        item = type_.dtype.bits // 8
        per_sample = [floor_div(amount, batch) for amount in amounts]
        known = [number for number in per_sample if isinstance(number, int)]
        if len(known) == len(per_sample):
            return {"bytes": self.bags.bytes_of(max(known), item)}
        most: Dim = functools.reduce(maximum, amounts)
        return {"bytes": most * (type_.dtype.bits // 8)}

    def look_up(self, indices: Value, offsets: Value) -> Value:
        """Look up the samples of all ranks in the tables of this one."""
        graph = self.tape.graph
        if not self._own:
            dtype = graphs.typed(self.bags.first.operands[0]).dtype
            name = graph.fresh_name(f"{self.group.name}.nothing")
            return graph.add_parameter(name, TensorType(dtype, (0,)))
        weights = [self._weight(shard) for shard in self._own]
        attributes: dict[str, AttrValue] = {
            **dict(self.bags.first.attributes),
            "tables": tuple(shard.record(self.group.name) for shard in self._own),
            "has_offsets": True,
            "include_last_offset": True,
        }
        tape = self.named("lookup")
        return tape.op("embedding_bag", *weights, indices, offsets, **attributes)

    def _weight(self, shard: sharded_tables.Shard) -> Value:
        """Declare a part of a table; a whole table stays as it is."""
        if shard.type == graphs.typed(shard.table.weight):
            return shard.table.weight
        graph, name = self.tape.graph, shard.table.weight.name
        part = f".{shard.part}" if shard.parts > 1 else ""
        return graph.add_parameter(graph.fresh_name(f"{name}.shard{part}"), shard.type)

    @property
    def widths(self) -> list[int]:
        """Columns of each place."""
        return [sum(shard.dim for shard in place) for place in self.group.places]

    def _exchanged(self, sent: Value) -> Value:
        """Send every rank the rows of its samples, as one list."""
        widths, batch = self.widths, self.bags.batch
        found, uneven = self._wire(batch * sum(widths)), dict[str, AttrValue]()
        most = max(max(widths) * len(widths), sum(widths))
        if self.bags.distinct and found.dtype == self._rows:
            uneven["bytes"] = self.bags.bytes_of(most, found.dtype.bits // 8)
        elif len(set(widths)) > 1:
            uneven["bytes"] = self._wire(batch * most).nbytes
        tape, shape = self.named("output"), found.shape
        uneven |= self.bags.filled
        attributes = {**self._across(), **uneven, **self._request(last=True)}
        return tape.op("all_to_all", sent, shape=shape, **attributes)

    def _wire(self, numbers: Dim) -> TensorType:
        """Return the type that so many numbers are sent as between places."""
        type_ = TensorType(self._rows, (numbers,))
        if self.codec is None or self.codec.keeps(self._rows):
            return type_
        return encoded(type_, self.codec.forward)

    def _request(self, *, last: bool) -> dict[str, AttrValue]:
        """Let the last collective be waited for where rows are read first.

        TorchRec waits for what follows a lookup at once where another follows that.
        """
        return {"request": True} if last and not self.functional else {}

    def _joined(self, flat: Value) -> Value:
        """Join the rows of all places along the columns."""
        tape, batch = self.named("output"), self.bags.batch
        widths = [width for width in self.widths if width]
        if len(widths) == 1:
            return tape.reshape(flat, batch, widths[0])
        sizes = tape.integers(*(batch * width for width in widths))
        blocks = tape.ops("split", len(widths), flat, sizes, axis=0, parts=len(widths))
        rows = [
            tape.reshape(block, batch, width)
            for block, width in zip(blocks, widths, strict=True)
        ]
        return tape.op("concat", *rows, axis=1)

    def _all(self) -> dict[str, AttrValue]:
        return {"group": "emb", "ranks": self.group.ranks}

    def _place(self) -> dict[str, AttrValue]:
        if len(self.group.places) == 1:
            return self._all()
        return {"group": f"emb.node{self.place}", "ranks": self.group.among}

    def _across(self) -> dict[str, AttrValue]:
        if self.group.among == 1:
            return self._all()
        ranks, stride = len(self.group.places), self.group.among
        return {"group": "emb.nodes", "ranks": ranks, "stride": stride}


@attrs.define(eq=False)
class Lookups:
    """All exchanges of one rank, in place of the lookups of its model.

    Attributes:
        tape: The graph of the rank, to write on.
        exchanges: What takes the place of the lookups.
        nodes: All lookups, with the tables of each.

    """

    tape: graphs.Tape
    exchanges: Sequence[SentLookups]
    nodes: sharded_tables.LookupNodes
    _sent: list[Value] = attrs.field(factory=list[Value], init=False)

    def write(self, start: Node) -> None:
        """Send before *start*, receive before who reads rows first."""
        rows = {value for node in self.nodes for value in node.results}
        graph = self.tape.graph
        readers = (n for n in graph if not rows.isdisjoint(n.operands))
        reader = next(readers, None)

        def step(node: Node) -> None:
            if node is start:
                self._sent = [exchange.send() for exchange in self.exchanges]
            if node is reader:
                self._receive()

        graph.rewrite(step)
        if reader is None:
            self._receive()

    def _receive(self) -> None:
        """Let the model read what the exchanges bring."""
        found: dict[str, dict[int, Value]] = {}
        for exchange, sent in zip(self.exchanges, self._sent, strict=True):
            for shard, value in exchange.receive(sent):
                found.setdefault(shard.table.name, {})[shard.part] = value
        for node, tables in self.nodes.items():
            parts = [found[t.name] for t in tables if t.name in found]
            pieces = [of_table[part] for of_table in parts for part in sorted(of_table)]
            if not pieces:
                continue
            tape = self.tape
            tape.stem, tape.location = node.name, node.location
            whole = _whole(pieces) if len(pieces) > 1 else pieces[0]
            joined = whole or tape.op("concat", *pieces, axis=1)
            tape.graph.replace_uses(node.results[0], joined)


def _whole(pieces: Sequence[Value]) -> Value | None:
    producer = pieces[0].producer
    if producer is None or producer.op != "split":
        return None
    return producer.operands[0] if producer.results == tuple(pieces) else None
