"""The pass `compress`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import attrs

from perfc.ir import AnyKey, AttrValue, Graph, Node, Program, UsageError, Value
from perfc.ir.dims import ceil_div
from perfc.ir.location import Location
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.types import F16, I8, I32, I64, DType, TensorType
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.graphs import Tape, is_between_stages, typed
from perfc.passes.shapes import Inference

TOPK, FP16, INT8 = KINDS = ("topk", "fp16", "int8")
INDEX_BITS = 32
_NARROW: Mapping[str, DType] = {FP16: F16, INT8: I8}


@attrs.frozen
class Compress(Transform):
    """Compress what stages of a pipeline send each other, activations and gradients.

    The sending stage selects or converts, the receiving one restores; each is kernels
    that the schedule sees. Integers, and what would not get smaller, are sent as they
    are. Run it after `pipeline-parallel`.

    Attributes:
        kind: `topk` sends the largest values and their places, 4 bytes each; `fp16` and
            `int8` all values in 16 and 8 bits, int8 with a scale known beforehand.
        ratio: Of `topk`: one value in so many is kept; 1 sends tensors as they are.
        half: Whether `topk` sends its values in 16 bits.

    Raises:
        UsageError: an option cannot be.

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

    def codec(self, type_: TensorType) -> Codec | None:
        """Return how a tensor is compressed; None if it is sent as it is."""
        bits = type_.dtype.bits
        if not type_.dtype.is_float:
            return None
        if self.kind != TOPK:
            narrow = _NARROW[self.kind]
            return Codec(type_, narrow, 0) if narrow.bits < bits else None
        value = F16 if self.half and bits > F16.bits else type_.dtype
        smaller = value.bits + INDEX_BITS < self.ratio * bits
        return Codec(type_, value, self.ratio) if smaller else None

    def _send(self, graph: Graph, node: Node) -> bool:
        (x,) = node.operands
        codec = self.codec(typed(x))
        if codec is None:
            return False
        first, *others = codec.encode(_tape(graph, node.location), x)
        for value in others:  # before the values, as they are received
            location = attrs.evolve(node.location, name=f"{value.name}.sent")
            graph.add("send", (value,), (), node.attributes, location=location)
        graph.set_operand(node, 0, first)
        return True

    def _receive(self, graph: Graph, node: Node) -> bool:
        (x,) = node.results
        codec = self.codec(typed(x))
        if codec is None:
            return False
        tape = _tape(graph, node.location)
        parts: list[Value] = []
        for type_ in reversed(codec.sent):
            shape: tuple[AttrValue, ...] = type_.shape
            attributes = {**node.attributes, "dtype": type_.dtype, "shape": shape}
            parts.insert(0, tape.op("recv", **attributes))
        graph.replace_uses(x, codec.decode(tape, parts))
        return True


@attrs.frozen
class Codec:
    """How one tensor is compressed and restored.

    Attributes:
        type: Its type.
        value: The type of values on their way.
        ratio: One in so many is kept; 0 for all.

    """

    type: TensorType
    value: DType
    ratio: int

    @property
    def sent(self) -> list[TensorType]:
        """Types of what is sent: values, and the places of kept ones."""
        if not self.ratio:
            return [TensorType(self.value, self.type.shape)]
        kept = (ceil_div(self.type.numel, self.ratio),)
        return [TensorType(self.value, kept), TensorType(I32, kept)]

    def encode(self, tape: Tape, x: Value) -> list[Value]:
        """Write what the sender does; return what it sends."""
        if not self.ratio:
            return [self._narrow(tape, x)]
        flat = tape.reshape(x, self.type.numel)
        (kept,) = self.sent[0].shape
        count = tape.integers(kept)
        found, places = tape.ops("topk", 2, flat, count, axis=0)
        if self.value != self.type.dtype:
            found = tape.op("cast", found, dtype=self.value)
        return [found, tape.op("cast", places, dtype=I32)]

    def _narrow(self, tape: Tape, x: Value) -> Value:
        if self.value.is_float:
            return tape.op("cast", x, dtype=self.value)
        return tape.op("quantize", x, tape.number(x, 1.0), dtype=self.value)

    def decode(self, tape: Tape, parts: Sequence[Value]) -> Value:
        """Write what the receiver does with the parts; return the tensor."""
        dtype = self.type.dtype
        values = parts[0]
        if not self.ratio:
            if self.value.is_float:
                return tape.op("cast", values, dtype=dtype)
            scale = tape.full(TensorType(dtype, ()), 1.0)
            return tape.op("dequantize", values, scale, dtype=dtype)
        if self.value != dtype:
            values = tape.op("cast", values, dtype=dtype)
        places = tape.op("cast", parts[1], dtype=I64)
        zeros = tape.full(TensorType(dtype, (self.type.numel,)), 0.0)
        made = tape.op("scatter_elements", zeros, places, values, axis=0)
        return tape.reshape(made, *self.type.shape)


def _tape(graph: Graph, location: Location) -> Tape:
    inference = Inference(graph, BUILTIN_OPS)
    return Tape(graph, inference, location, stem="compress", constants="compress")
