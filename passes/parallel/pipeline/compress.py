"""The pass `compress`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from perfc.ir import AnyKey, AttrValue, Graph, Node, Program, UsageError, Value, types
from perfc.ir.dims import Dim, ceil_div
from perfc.ir.location import Location
from perfc.ir.ops import BUILTIN_OPS
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.graphs import Tape, is_between_stages, typed
from perfc.passes.shapes import Inference

TOPK, FP16, INT8 = KINDS = ("topk", "fp16", "int8")
INDEX_BITS = 32
_LARGEST = 127
"""Largest of int8, that of a tensor's magnitudes becomes."""

_NARROW: Mapping[str, types.DType] = {FP16: types.F16, INT8: types.I8}


@attrs.frozen
class Compress(Transform):
    """Compress what stages of a pipeline send each other, activations and gradients.

    The sending stage selects or converts, the receiving one restores; each is kernels
    that the schedule sees. What a tensor becomes is one message: its parts are joined
    by a copy, so that a link's latency counts once. Integers, and what would not get
    smaller, are sent as they are. Run it after `pipeline-parallel`.

    Attributes:
        kind: `topk` sends the largest values and their places, 4 bytes each; `fp16` and
            `int8` all values in 16 and 8 bits, int8 with one scale of 4 bytes for a
            tensor, by its largest magnitude.
        ratio: Of `topk`: one value in so many is kept; 1 sends tensors as they are.
        half: Whether `topk` sends its values in 16 bits.

    """

    name: ClassVar[str] = "compress"
    phase: ClassVar[Phase] = Phase.LAST
    runs_after: ClassVar[frozenset[str]] = frozenset({"pipeline-parallel"})
    requires: ClassVar[frozenset[AnyKey]] = frozenset()

    kind: str = TOPK
    ratio: int = 100
    half: bool = False

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        if self.kind not in KINDS:
            msg = f"kind={self.kind!r} of {self.name}: expected {', '.join(KINDS)}"
            raise UsageError(msg)
        if self.ratio < 1:
            msg = f"ratio={self.ratio} of {self.name}: expected 1 or more"
            raise UsageError(msg)

    def run(self, program: Program, ctx: PassContext) -> None:
        """Compress every transfer between stages."""
        if self.kind == TOPK and self.ratio == 1:
            return
        found = [self._changed(rank.ops) for rank in program.classes if rank.ops]
        if not any(found):
            ctx.note("compressed", f"{self.name}: no stages send what gets smaller")

    def _changed(self, graph: Graph) -> int:
        """Compress the transfers of a graph; return how many."""
        done: set[Node] = set()

        def step(node: Node) -> None:
            if not is_between_stages(node):
                return
            if node.op == "send" and self._send(graph, node):
                sent.append(node)
            elif node.op == "recv" and self._receive(graph, node):
                done.add(node)

        sent: list[Node] = []
        graph.rewrite(step)
        graph.erase_dead(lambda node: node not in done)
        return len(sent) + len(done)

    def codec(self, type_: types.TensorType) -> Codec | None:
        """Return how a tensor is compressed; None if it is sent as it is."""
        bits = type_.dtype.bits
        if not type_.dtype.is_float:
            return None
        if self.kind != TOPK:
            narrow = _NARROW[self.kind]
            return Codec(type_, narrow, 0) if narrow.bits < bits else None
        value = types.F16 if self.half and bits > types.F16.bits else type_.dtype
        smaller = value.bits + INDEX_BITS < self.ratio * bits
        return Codec(type_, value, self.ratio) if smaller else None

    def _send(self, graph: Graph, node: Node) -> bool:
        (x,) = node.operands
        codec = self.codec(typed(x))
        if codec is None:
            return False
        graph.set_operand(node, 0, codec.encode(_tape(graph, node.location), x))
        return True

    def _receive(self, graph: Graph, node: Node) -> bool:
        (x,) = node.results
        codec = self.codec(typed(x))
        if codec is None:
            return False
        tape = _tape(graph, node.location)
        shape: tuple[AttrValue, ...] = codec.sent.shape
        attributes = {**node.attributes, "dtype": codec.sent.dtype, "shape": shape}
        graph.replace_uses(x, codec.decode(tape, tape.op("recv", **attributes)))
        return True


@attrs.frozen
class Codec:
    """How one tensor is compressed and restored.

    Attributes:
        type: Its type.
        value: The type of values on their way.
        ratio: One in so many is kept; 0 for all.

    """

    type: types.TensorType
    value: types.DType
    ratio: int

    @property
    def sent(self) -> types.TensorType:
        """What is sent: values, and behind them places of kept ones, or their scale."""
        shape, unit = self.type.shape, self._unit
        if self.ratio:
            parts = (self.value.bits + INDEX_BITS) // unit.bits
            shape = (self._kept * parts,)
        elif not self.value.is_float:
            shape = (self.type.numel + types.F32.bits // unit.bits,)
        return types.TensorType(unit, shape)

    @property
    def _unit(self) -> types.DType:
        """The elements in which parts of a message are told."""
        return min(self.value, types.I32, key=lambda dtype: dtype.bits)

    @property
    def _kept(self) -> Dim:
        kept: Dim = ceil_div(self.type.numel, self.ratio)
        return kept

    def encode(self, tape: Tape, x: Value) -> Value:
        """Write what the sender does; return what it sends."""
        flat = tape.reshape(x, self.type.numel)
        if self.ratio:
            count = tape.integers(self._kept)
            found, places = tape.ops("topk", 2, flat, count, axis=0)
            if self.value != self.type.dtype:
                found = tape.op("cast", found, dtype=self.value)
            return self._joined(tape, found, tape.op("cast", places, dtype=types.I32))
        if self.value.is_float:
            return tape.op("cast", x, dtype=self.value)
        largest = tape.op("amax", flat)
        scale = tape.op("mul", largest, tape.number(largest, 1 / _LARGEST))
        found = tape.op("quantize", flat, scale, dtype=self.value)
        return self._joined(tape, found, tape.reshape(scale, 1))

    def decode(self, tape: Tape, sent: Value) -> Value:
        """Write what the receiver does with it; return the tensor."""
        dtype = self.type.dtype
        if self.ratio:
            values, places = self._parts(tape, sent, self._kept, types.I32)
            if self.value != dtype:
                values = tape.op("cast", values, dtype=dtype)
            places = tape.op("cast", places, dtype=types.I64)
            zeros = tape.full(types.TensorType(dtype, (self.type.numel,)), 0.0)
            made = tape.op("scatter_elements", zeros, places, values, axis=0)
            return tape.reshape(made, *self.type.shape)
        if self.value.is_float:
            return tape.op("cast", sent, dtype=dtype)
        values, scale = self._parts(tape, sent, self.type.numel, types.F32)
        made = tape.op("dequantize", values, tape.reshape(scale), dtype=dtype)
        return tape.reshape(made, *self.type.shape)

    def _joined(self, tape: Tape, *parts: Value) -> Value:
        """Write parts behind each other, as one message."""
        return tape.op(
            "concat", *(_as(tape, part, self._unit) for part in parts), axis=0
        )

    def _parts(
        self, tape: Tape, sent: Value, count: Dim, second: types.DType
    ) -> tuple[Value, Value]:
        """View *count* values, and what lies behind them."""
        end = count * (self.value.bits // self._unit.bits)
        (whole,) = typed(sent).shape
        values = tape.cut(sent, (0, end), 0)
        others = tape.cut(sent, (end, whole), 0)
        return _as(tape, values, self.value), _as(tape, others, second)


def _as(tape: Tape, x: Value, dtype: types.DType) -> Value:
    """View the bits of a value as another type."""
    return x if typed(x).dtype == dtype else tape.op("bit_cast", x, dtype=dtype)


def _tape(graph: Graph, location: Location) -> Tape:
    inference = Inference(graph, BUILTIN_OPS)
    return Tape(graph, inference, location, stem="compress", constants="compress")
