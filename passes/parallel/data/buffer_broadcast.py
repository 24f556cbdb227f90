"""The broadcast of buffers before forward, as `DistributedDataParallel` does it.

Buffers are what a module keeps beside its parameters: running statistics, counters.
DDP sends those of rank 0 to all others before each forward: `_broadcast_coalesced`
joins them to flat tensors of 250 MiB at most (`broadcast_bucket_size`), one for each
type, and copies every buffer back out of its place (`BroadcastWork` in
`torch/csrc/distributed/c10d/comm.cpp`). At most two are under way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from perfc.ir import AttrValue, Graph, Node, TensorType, Value
from perfc.ir.core import CONST
from perfc.ir.location import Location
from perfc.passes import graphs
from perfc.passes.parallel.data.gradient_buckets import Bucket, Limits, fill_buckets
from perfc.passes.training import trained

_LIMIT_BYTES = 250 * 2**20
_IN_FLIGHT = 2
_HERE = Location(name="broadcast_buffers")


def buffers_of(graph: Graph) -> list[Value]:
    """Return the buffers of a training step, in order.

    Where the source does not name any, those are parameters that want no gradients.
    Those alone that forward reads. Which ones a step that runs them as constants has
    lost, nobody knows.
    """
    wanted, kinds = frozenset(trained(graph)), graph.untrained
    return [
        v
        for v in graph.parameters
        if v not in wanted and kinds.get(v) != CONST and _in_forward(graph, v)
    ]


def _in_forward(graph: Graph, value: Value) -> bool:
    phases = {node.location.phase for node in graph.readers(value)}
    return bool(phases - {graphs.BACKWARD, graphs.OPTIMIZER})


@attrs.define(eq=False)
class BufferBroadcast:
    """Writes the broadcast of one graph's buffers before its first node.

    Attributes:
        graph: A training step.
        communicator: Attributes of the collectives.

    """

    graph: Graph
    communicator: Mapping[str, AttrValue]

    def write(self) -> None:
        """Broadcast every buffer, and copy it back."""
        limits = Limits(_LIMIT_BYTES, _LIMIT_BYTES)
        buckets = fill_buckets(buffers_of(self.graph), limits)
        first = next(iter(self.graph), None)

        def put_before(node: Node) -> None:
            if node is first:
                self._broadcast(buckets)

        self.graph.rewrite(put_before)

    def _broadcast(self, buckets: Sequence[Bucket]) -> None:
        under_way: list[tuple[Bucket, Value]] = []
        for bucket in buckets:
            if len(under_way) == _IN_FLIGHT:
                self._copy_back(*under_way.pop(0))
            under_way.append((bucket, self._sent(bucket)))
        for bucket, flat in under_way:
            self._copy_back(bucket, flat)

    def _sent(self, bucket: Bucket) -> Value:
        """Return the buffers of rank 0, one behind the other."""
        parts = [self._flattened(buffer) for buffer in bucket.tensors]
        flat = parts[0]
        if len(parts) > 1:
            flat = self._add("concat", parts, "buffers", {"axis": 0}, bucket.type)
        name = f"{flat.name}.broadcast"
        return self._add("broadcast", [flat], name, self.communicator, bucket.type)

    def _flattened(self, buffer: Value) -> Value:
        type_ = graphs.typed(buffer)
        flat = TensorType(type_.dtype, (type_.numel,))
        return self._view(buffer, f"{buffer.name}.flat", "aten::view", flat)

    def _copy_back(self, bucket: Bucket, flat: Value) -> None:
        parts = [self._part(flat, buffer) for buffer in bucket.tensors]
        for buffer, part in zip(bucket.tensors, parts, strict=True):
            name, place = f"{buffer.name}.copied", {"in_place": True}
            self._add("assign", [buffer, part], name, place, graphs.typed(buffer))

    def _part(self, flat: Value, buffer: Value) -> Value:
        type_, name = graphs.typed(buffer), f"{buffer.name}.sent"
        narrow = TensorType(type_.dtype, (type_.numel,))
        part = self._view(flat, name, "aten::narrow", narrow)
        return self._view(part, name, "aten::view", type_)

    def _view(self, x: Value, name: str, call: str, type_: TensorType) -> Value:
        told: dict[str, AttrValue] = {"call": call, "contiguous": True}
        return self._add("view", [x], name, told, type_)

    def _add(
        self,
        op: str,
        operands: Sequence[Value],
        name: str,
        attributes: Mapping[str, AttrValue],
        type_: TensorType,
    ) -> Value:
        fresh = self.graph.fresh_name(name)
        node = self.graph.add(op, operands, [fresh], attributes, location=_HERE)
        node.results[0].type = type_
        return node.results[0]
