"""Buckets of gradients, as `DistributedDataParallel` makes and reduces them.

From the second iteration on DDP fills buckets in the order in which gradients become
ready (`Reducer::rebuild_buckets`): a small first one, so that communication begins
early, then larger ones. A bucket is full once it has reached its size, so the last
gradient may lead beyond it (`compute_bucket_assignment_by_size` in
`torch/csrc/distributed/c10d/reducer.cpp`). Types have buckets of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from perfc.ir import AttrValue, DType, Graph, Node, TensorType, Value
from perfc.ir.dims import Dim, Expr
from perfc.ir.location import Location
from perfc.ir.support import UnsupportedModelError
from perfc.passes import graphs


@attrs.frozen
class Limits:
    """Sizes at which a bucket is full.

    Attributes:
        first_bytes: Of the first bucket of a type.
        bytes: Of the others.

    """

    first_bytes: int
    bytes: int


@attrs.define(eq=False)
class Bucket:
    """Tensors that are sent together.

    Attributes:
        dtype: Their element type.
        limit_bytes: The size at which it is full.
        tensors: The tensors and where each begins, in elements.
        elements: How many there are in all.

    """

    dtype: DType
    limit_bytes: int
    tensors: dict[Value, int] = attrs.field(factory=dict["Value", int])
    elements: int = 0

    @property
    def type(self) -> TensorType:
        """The flat tensor that holds them."""
        return TensorType(self.dtype, (self.elements,))

    @property
    def last(self) -> Value:
        """The tensor that is ready last."""
        return next(reversed(self.tensors))

    def add(self, tensor: Value) -> None:
        """Put one more tensor in."""
        self.tensors[tensor] = self.elements
        self.elements += _elements(tensor)


def _elements(value: Value) -> int:
    """Return the size of a tensor."""
    numel: Dim = graphs.typed(value).numel
    if isinstance(numel, Expr):
        msg = (
            f"{value} has {numel} elements; buckets are made before symbols "
            "are bound: fix the sizes of parameters"
        )
        raise UnsupportedModelError(msg)
    return numel


def fill_buckets(tensors: Iterable[Value], limits: Limits) -> list[Bucket]:
    """Assign tensors to buckets, in the order in which they are ready."""
    filling: dict[DType, Bucket] = {}
    buckets: list[Bucket] = []
    for tensor in tensors:
        dtype = graphs.typed(tensor).dtype
        bucket = filling.get(dtype)
        if bucket is None:
            is_first = all(other.dtype != dtype for other in buckets)
            limit = limits.first_bytes if is_first else limits.bytes
            bucket = filling[dtype] = Bucket(dtype, limit)
            buckets.append(bucket)
        bucket.add(tensor)
        if bucket.type.nbytes >= bucket.limit_bytes:
            del filling[dtype]
    return buckets


@attrs.define(eq=False)
class Reduction:
    """Writes the reduction of one graph's gradients into it.

    Attributes:
        graph: A training step.
        communicator: Attributes of the collectives.
        buckets: Dense gradients.
        rows: Sparse gradients, which are gathered: rows, and the indices of each.
        keep_views: Whether gradients are views of their buckets.

    """

    graph: Graph
    communicator: Mapping[str, AttrValue]
    buckets: Sequence[Bucket]
    rows: Mapping[Value, Value]
    keep_views: bool = False
    _places: dict[Value, Bucket] = attrs.field(
        factory=dict["Value", Bucket], init=False
    )
    _flat: dict[int, Value] = attrs.field(factory=dict[int, Value], init=False)
    _reduced: dict[Value, Value] = attrs.field(
        factory=dict["Value", "Value"], init=False
    )
    _ready: list[Value] = attrs.field(factory=list[Value], init=False)
    _here: Location = attrs.field(factory=Location, init=False)

    def write(self) -> None:
        """Reduce every gradient; who reads it after backward reads the result."""
        for number, bucket in enumerate(self.buckets):
            self._places.update(dict.fromkeys(bucket.tensors, bucket))
            name = self.graph.fresh_name(f"bucket{number}")
            self._flat[id(bucket)] = self.graph.add_state(name, bucket.type)
        self.graph.rewrite(self._step)
        self._issue()
        self._finish()
        moved = self._reduced
        self.graph.outputs = [moved.get(v, v) for v in self.graph.outputs]

    def _step(self, node: Node) -> None:
        """Write what belongs before *node*."""
        self._issue()
        if node.location.phase == graphs.OPTIMIZER:
            self._finish()
            for index, value in enumerate(node.operands):
                if value in self._reduced:
                    self.graph.set_operand(node, index, self._reduced[value])
        self._here = attrs.evolve(node.location, phase=graphs.BACKWARD, origin="")
        self._ready += [v for v in node.results if v in self._places or v in self.rows]

    def _issue(self) -> None:
        """Take what the node before has made ready to its bucket; reduce a full one."""
        ready, self._ready = self._ready, []
        for value in ready:
            if value in self.rows:
                self._gather(self.rows[value])
                self._gather(value)
                continue
            bucket = self._places[value]
            flat = self._flat[id(bucket)]
            place: dict[str, AttrValue] = {"offset": bucket.tensors[value]}
            flat = self._add("pack", (flat, value), f"{value.name}.packed", place)
            if value is bucket.last:
                name = f"{value.name}.reduced"
                flat = self._add("all_reduce", (flat,), name, self.communicator)
            self._flat[id(bucket)] = flat

    def _gather(self, value: Value) -> None:
        if value in self._reduced:
            return
        name, communicator = f"{value.name}.gathered", self.communicator
        self._reduced[value] = self._add("all_gather", (value,), name, communicator)

    def _finish(self) -> None:
        """Wait for the buckets at the end of backward, one after the other."""
        buckets, self.buckets = self.buckets, ()
        for bucket in buckets:
            flat = self._flat[id(bucket)]
            for gradient in bucket.tensors:
                self._reduced[gradient] = self._returned(flat, gradient)

    def _returned(self, flat: Value, gradient: Value) -> Value:
        """Return a gradient out of its bucket: copied, or as a view of it."""
        type_ = graphs.typed(gradient)
        view = self._add("view", (flat,), f"{gradient.name}.mean", {"call": ""}, type_)
        if self.keep_views:
            return view
        name, place = f"{gradient.name}.copied", {"in_place": True}
        return self._add("assign", (gradient, view), name, place, type_)

    def _add(
        self,
        op: str,
        operands: tuple[Value, ...],
        name: str,
        attributes: Mapping[str, AttrValue],
        type_: TensorType | None = None,
    ) -> Value:
        """Add a node of one result; without a type inference gives it one."""
        name = self.graph.fresh_name(name)
        node = self.graph.add(op, operands, [name], attributes, location=self._here)
        node.results[0].type = type_
        return node.results[0]
