"""The pass `convert-dtype`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

import attrs

from perfc import ir
from perfc.ir.dims import Dim
from perfc.ir.opdef import Abstract
from perfc.ir.ops import BUILTIN_OPS
from perfc.passes import graphs
from perfc.passes.base import Pass, PassContext, Phase, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.precision.autocast import (
    LOW_DTYPES,
    casts_first,
    is_narrowed,
    needs_fp32,
)
from perfc.passes.precision.convert_part import PLAIN_FLOATS, convert_part
from perfc.passes.raising import take_apart
from perfc.passes.shapes import Inference

_F32 = ir.DTYPES["f32"]


@attrs.frozen
class ConvertDtype(Transform):
    """Let a model compute in a type of 16 bits.

    As `model.to(torch.bfloat16)`: float inputs, parameters and all that follows from
    them have the type; integers, quantised and 8-bit tensors stay. With *autocast*, as
    `torch.autocast("cuda", torch.bfloat16)`: parameters and inputs stay fp32, GEMMs,
    convolutions, attention and recurrent layers get casts before their fp32
    operands, ops that need the range get casts to fp32 or compute in it, and others
    take the widest type of what they read. A parameter is cast once an iteration.

    Attributes:
        to: `bf16` or `fp16`.
        autocast: Whether to insert casts, as autocast does, instead.
        where: Modules, or nodes, that alone are converted, as `bot_l.*`: parameters
            that only they read have the type, what else enters them is cast to it, and
            what leaves them is cast back. All if empty.

    """

    name: ClassVar[str] = "convert-dtype"
    phase: ClassVar[Phase] = Phase.FORWARD
    requires: ClassVar[frozenset[ir.AnyKey]] = frozenset({TYPED, ELEMENTS})
    provides: ClassVar[frozenset[ir.AnyKey]] = frozenset({TYPED, ELEMENTS})

    to: str = "bf16"
    autocast: bool = False
    where: str = ""

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        if self.where and self.autocast:
            msg = f"where={self.where!r} of {self.name}: autocast is of whole models"
            raise ir.UsageError(msg)
        if self.to not in LOW_DTYPES:
            msg = f"to={self.to!r} of {self.name}: expected {' or '.join(LOW_DTYPES)}"
            raise ir.UsageError(msg)

    @property
    def converts_to(self) -> str:
        """What `--dtype` calls the type; empty if only a part is converted."""
        if self.where:
            return ""
        return f"amp-{self.to}" if self.autocast else self.to

    def follows(self, other: Pass) -> bool:
        """Follow, too, what gathers parameters in another type: autocast meets it."""
        return bool(self.autocast and other.param_dtype) or super().follows(other)

    def run(self, program: ir.Program, ctx: PassContext) -> None:
        """Convert every op graph."""
        low = ir.DTYPES[LOW_DTYPES[self.to]]
        for rank in program.classes:
            if rank.ops is None:
                continue
            known: Mapping[ir.Value, tuple[Dim, ...]] = ctx.get(ELEMENTS, rank.ops)
            if self.autocast:
                _refuse_training_step(rank.ops)
                # Insert casts, also within what the source spells out; return known
                # elements.
                graph = rank.ops
                inference = Inference(graph, BUILTIN_OPS)
                inference.elements.update(known)
                take_apart(graphs.Tape(graph, inference))
                _Autocast(graph, low, inference.elements).run()
                known = inference.elements
            elif self.where:
                _refuse_training_step(rank.ops, "a part in another type")
                convert_part(rank.ops, low, self.where, known)
            else:
                convert(rank.ops, low)
            ctx.set(TYPED, rank.ops, True)
            ctx.set(ELEMENTS, rank.ops, known)


def _refuse_training_step(graph: ir.Graph, what: str = "autocast") -> None:
    if graphs.is_training_step(graph):
        msg = (
            f"{graph}: is a training step already, and {what} comes before its "
            "backward pass: convert the forward graph, or record the step with it "
            "(perfc.from_torch(..., dtype=...))"
        )
        raise ir.UsageError(msg)


def convert(graph: ir.Graph, low: ir.DType, kept: Collection[ir.Value] = ()) -> None:
    """Give every plain float the type, in types and in attributes, but for *kept*."""
    for value in graph.values():
        if (
            value.type is not None
            and value.type.dtype in PLAIN_FLOATS
            and value not in kept
        ):
            value.type = attrs.evolve(value.type, dtype=low)
    for node in graph:
        if any(value in kept for value in node.results):
            continue
        converted: dict[str, ir.AttrValue] = {
            name: low
            for name, item in node.attributes.items()
            if isinstance(item, ir.DType) and item in PLAIN_FLOATS
        }
        if converted:
            graph.set_attributes(node, **converted)


@attrs.define(eq=False)
class _Autocast:
    """Puts casts before nodes, in program order.

    Attributes:
        graph: The graph.
        low: The narrow type.
        known: Elements of what is known before running.
        cached: The cast of each parameter.

    """

    graph: ir.Graph
    low: ir.DType
    known: Mapping[ir.Value, tuple[Dim, ...]]
    cached: dict[ir.Value, ir.Value] = attrs.field(
        factory=dict[ir.Value, ir.Value], init=False
    )
    _parameters: frozenset[ir.Value] = attrs.field(init=False)

    def run(self) -> None:
        """Go through the graph."""
        self._parameters = frozenset(self.graph.parameters)
        self.graph.rewrite(self._visit)

    def _visit(self, node: ir.Node) -> None:
        if is_narrowed(node):
            self._cast_operands(node, _F32, self.low)
        elif needs_fp32(node) and casts_first(node.op, self.low):
            self._cast_operands(node, self.low, _F32)
        elif needs_fp32(node) and _dtype(node.operands[0]) == self.low:
            self.graph.set_attributes(node, dtype=_F32)
        # The results what the op makes of its operands' new types.
        operands = [
            Abstract(value.type, self.known.get(value))
            for value in node.operands
            if value.type is not None
        ]
        inferred = BUILTIN_OPS[node.op].infer(node.attributes, operands)
        for value, found in zip(node.results, inferred, strict=False):
            if found is not None and value.type is not None:
                value.type = attrs.evolve(value.type, dtype=found.type.dtype)

    def _cast_operands(self, node: ir.Node, old: ir.DType, new: ir.DType) -> None:
        made: dict[ir.Value, ir.Value] = {}
        for index, value in enumerate(node.operands):
            if _dtype(value) == old and value not in self.known:
                if value not in made:
                    made[value] = self._cast(node, value, new)
                self.graph.set_operand(node, index, made[value])

    def _cast(self, node: ir.Node, value: ir.Value, dtype: ir.DType) -> ir.Value:
        """Cast a value; a parameter's cast is kept for the iteration."""
        if value in self.cached:
            return self.cached[value]
        assert value.type is not None  # the fact TYPED says so
        name = self.graph.fresh_name(f"{value.name}.{dtype.name}")
        attributes = ir.Record({"dtype": dtype})
        weight = value in self._parameters and value not in self.graph.untrained
        if weight and dtype == self.low:
            attributes = attributes.updated(cached=True)
        added = self.graph.add(
            "cast", [value], [name], attributes, location=node.location
        )
        (cast,) = added.results
        cast.type = attrs.evolve(value.type, dtype=dtype)
        if value in self._parameters:
            self.cached[value] = cast
        return cast


def _dtype(value: ir.Value) -> ir.DType | None:
    return value.type.dtype if value.type is not None else None
