"""Lookups of tables with different numbers of bags, in one exchange of the ranks.

Where some features are deduplicated and others are not, TorchRec sends them as one
`KeyedJaggedTensor` of variable batch per feature: one input dist, and one output dist
whose rows are a flat list.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from perfc.ir import AttrValue, TensorType, Value
from perfc.ir.dims import Dim, floor_div, total
from perfc.passes.embeddings.sharded_lookup import LENGTHS, Exchange
from perfc.passes.embeddings.sharded_tables import Shard
from perfc.passes.graphs import Tape, typed


def joined(exchanges: Sequence[Exchange]) -> list[Exchange | JointExchange]:
    """Return exchanges with those together that can be: of whole rows, sent as is."""
    together = [one for one in exchanges if _can_join(one)]
    samples = {str(one.bags.samples) for one in together}
    if len(together) < 2 or len(samples) > 1:  # noqa: PLR2004 - one is alone
        return [*exchanges]
    rest = [one for one in exchanges if one not in together]
    return [JointExchange(tuple(together)), *rest]


def _can_join(exchange: Exchange) -> bool:
    group = exchange.group
    numbers = [shard.table.lookups for shard in group.shards]
    each = [floor_div(number, exchange.bags.batch) for number in numbers]
    return (
        exchange.codec is None
        and group.among == 1
        and len(group.places) > 1
        and all(isinstance(number, int) for number in each)
    )


@attrs.frozen(eq=False)
class JointExchange:
    """One rank's side of sharding groups that are exchanged together.

    Attributes:
        parts: The sharding groups, each of tables with as many bags.

    """

    parts: tuple[Exchange, ...]

    @property
    def _first(self) -> Exchange:
        return self.parts[0]

    def send(self) -> Value:
        """Write it up to the collective that brings the rows of this rank's samples."""
        flat: list[Value] = []
        for part, lists in zip(self.parts, self._distribute(), strict=True):
            rows = part.look_up(*lists)
            tape = part.named("output")
            flat.append(tape.reshape(rows, typed(rows).numel))
        tape = self._first.named("output")
        filled = [rows for rows in flat if typed(rows).shape != (0,)] or flat[:1]
        sent = filled[0] if len(filled) == 1 else tape.op("concat", *filled, axis=0)
        widths = [part.widths for part in self.parts]
        by_place = [self._weighed(at) for at in zip(*widths, strict=True)]
        most = max(by_place) * len(by_place)
        sums = [sum(each) for each in widths]
        sizes = [p.bags.batch * s for p, s in zip(self.parts, sums, strict=True)]
        item = typed(sent).dtype.bits // 8
        shared = self._attributes(sums, max(most, self._weighed(sums)), item)
        request: dict[str, AttrValue] = (
            {} if self._first.functional else {"request": True}
        )
        return tape.op("all_to_all", sent, shape=(total(sizes),), **shared, **request)

    def receive(self, got: Value) -> list[tuple[Shard, Value]]:
        """Write what follows; return the pooled rows of each shard, [batch, dim]."""
        sizes = [part.bags.batch * sum(part.widths) for part in self.parts]
        tape = self._first.named("output")
        found: list[tuple[Shard, Value]] = []
        for part, piece in zip(self.parts, _cut(tape, got, sizes), strict=True):
            found += part.receive(piece)
        return found

    def _weighed(self, numbers: Sequence[int]) -> int:
        """Return a sum over parts: numbers of a bag by kept bags, times `_whole`."""
        return sum(
            number * part.bags.share[0] * (self._whole // part.bags.share[1])
            for number, part in zip(numbers, self.parts, strict=True)
        )

    @property
    def _whole(self) -> int:
        return math.lcm(*(part.bags.share[1] for part in self.parts))

    def _attributes(
        self, sent: Sequence[int], most: int, item: int
    ) -> dict[str, AttrValue]:
        """Name the communicator, and the bytes that are sent of bags on average."""
        samples = self._first.bags.samples
        whole = total(
            part.bags.batch * n for part, n in zip(self.parts, sent, strict=True)
        )
        return {
            "group": "emb",
            "ranks": self._first.group.ranks,
            "bytes": floor_div(samples * most * item, self._whole),
            "filled": (samples * self._weighed(sent), whole * self._whole),
        }

    def _distribute(self) -> list[tuple[Value, Value]]:
        """Send the bags of this rank's samples to the tables; return each part's."""
        first, ranks = self._first, self._first.group.ranks
        graph, name = first.tape.graph, first.group.name
        features = [[len(place) for place in p.group.places] for p in self.parts]
        lookups = [[_lookups(p, at) for at in p.group.places] for p in self.parts]
        found: list[tuple[Value, list[Dim]]] = []
        for what, numbers in (("lengths", features), ("indices", lookups)):
            dtype = LENGTHS if what == "lengths" else first.bags.index_type
            sums = [sum(each) for each in numbers]
            size = total(
                p.bags.batch * n for p, n in zip(self.parts, sums, strict=True)
            )
            called = graph.fresh_name(f"{name}.{what}")
            sent = graph.add_input(called, TensorType(dtype, (size,)))
            if what == "lengths" and not first.fixed:
                first.exchange_splits(sent)
            own = [each[first.place] for each in numbers]
            got = [
                p.bags.batch * n * ranks for p, n in zip(self.parts, own, strict=True)
            ]
            by_place = [self._weighed(at) * ranks for at in zip(*numbers, strict=True)]
            most = max(self._weighed(sums), *by_place)
            item = dtype.bits // 8
            attributes = self._attributes(sums, most, item)
            tape = first.named(what)
            made = tape.op("all_to_all", sent, shape=(total(got),), **attributes)
            found.append((made, got))
        return self._regrouped(*found)

    def _regrouped(
        self, lengths: tuple[Value, list[Dim]], indices: tuple[Value, list[Dim]]
    ) -> list[tuple[Value, Value]]:
        """Order the bags of all ranks by table, and part them."""
        first = self._first
        count = sum(len(part.group.places[first.place]) for part in self.parts)
        if not count:
            return [(indices[0], lengths[0])] * len(self.parts)
        tape = first.named("input")
        ordered, offsets = tape.ops(
            "regroup_bags",
            *(2, lengths[0], indices[0]),
            ranks=first.group.ranks,
            features=count,
        )
        each = _cut(tape, ordered, indices[1])
        return list(zip(each, _cut(tape, offsets, lengths[1], more=1), strict=True))


def _lookups(exchange: Exchange, place: Sequence[Shard]) -> int:
    each = [floor_div(s.table.lookups, exchange.bags.batch) for s in place]
    return sum(number for number in each if isinstance(number, int))


def _cut(tape: Tape, value: Value, sizes: Sequence[Dim], more: int = 0) -> list[Value]:
    """View parts of a list, one behind the other, each with some elements more."""
    found: list[Value] = []
    start: Dim = 0
    for size in sizes:
        end = start + size
        found.append(tape.cut(value, (start, end + more), 0))
        start = end
    return found
