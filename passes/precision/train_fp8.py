"""The pass `train-fp8`."""

from __future__ import annotations

from typing import ClassVar

import attrs

from perfc import ir
from perfc.ir.core import BUFFER, Replacement
from perfc.ir.dims import ceil_div, product
from perfc.ir.location import Location
from perfc.ir.node_kinds import is_linear
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.graphs import is_training_step, typed
from perfc.passes.precision import own_weights
from perfc.passes.precision.convert_part import PLAIN_FLOATS

DELAYED, CURRENT, BLOCK = "delayed", "current", "block"
SCALINGS = (DELAYED, CURRENT, BLOCK)
"""Sources of scales: the largest numbers of steps before, that of the tensor,
which a kernel before finds, or those of blocks, which the kernel that converts
finds."""

_E4M3, _E5M2 = ir.DTYPES["f8e4m3"], ir.DTYPES["f8e5m2"]
_F32, _E8M0 = ir.DTYPES["f32"], ir.DTYPES["f8e8m0"]
_MULTIPLE, _BLOCK = 16, 32
_HISTORY = 1024
"""Steps whose largest numbers delayed scaling keeps (`amax_history_len`)."""

_BACKWARD, _BIAS = "backward", 2
_VIEWS = frozenset({"reshape", "flatten", "transpose", "cast"})


@attrs.frozen
class TrainFp8(Transform):
    """Let linear layers of a training step multiply in 8-bit floats, as frameworks do.

    As Transformer Engine's `Linear` under `fp8_autocast`: the input, the weight and the
    gradient of the result are converted, each by one kernel that writes it both as it
    is and transposed, as the tensor cores take either operand along the sums; input and
    weight to e4m3, gradients to e5m2 (e4m3 by blocks). The three products of a layer
    are of 8 bits, and write what they did. Weights, their gradients and the optimizer
    keep their types. It runs once the backward pass is derived. Layers whose sizes are
    no multiples of 16 stay as they are.

    Attributes:
        scaling: `delayed`: by the largest numbers of steps before; converting finds
            this step's, and one kernel at the end of the step makes scales of them.
            `current`: a kernel before each conversion finds the largest number.
            `block`: a scale for each 32 elements (MXFP8).

    """

    name: ClassVar[str] = "train-fp8"
    phase: ClassVar[Phase] = Phase.AFTER_BACKWARD
    requires: ClassVar[frozenset[ir.AnyKey]] = frozenset({TYPED, ELEMENTS})
    provides: ClassVar[frozenset[ir.AnyKey]] = frozenset({TYPED, ELEMENTS})
    runs_after: ClassVar[frozenset[str]] = frozenset({"training"})
    runs_before: ClassVar[frozenset[str]] = frozenset(
        {"data-parallel", "fsdp", "tensor-parallel", "accumulate-gradients"}
    )

    scaling: str = DELAYED

    def __attrs_post_init__(self) -> None:
        """Check the option."""
        if self.scaling not in SCALINGS:
            listed = ", ".join(SCALINGS)
            msg = f"scaling={self.scaling!r} of {self.name}: expected {listed}"
            raise ir.UsageError(msg)

    def run(self, program: ir.Program, ctx: PassContext) -> None:
        """Convert the products of every op graph."""
        found = 0
        own_weights.raise_layers(program)
        own_weights.say_unchanged(program, "fp8", ctx)
        for rank in program.classes:
            if rank.ops is None:
                continue
            if not is_training_step(rank.ops):
                msg = (
                    f"{rank.ops} has no backward pass: {self.name} is for training; "
                    "quantize{linear=fp8} is for inference"
                )
                raise ir.UsageError(msg)
            known = ctx.get(ELEMENTS, rank.ops)
            step = _Step(rank.ops, self.scaling)
            step.run()
            found += step.count
            ctx.set(TYPED, rank.ops, True)
            ctx.set(ELEMENTS, rank.ops, known)
        if not found:
            ctx.note(
                "no-fp8",
                f"no linear layer has sizes that are multiples of {_MULTIPLE}: nothing "
                "is multiplied in 8 bits",
            )


@attrs.frozen
class _Cast:
    """A value in 8 bits, as it is and transposed, and their scales."""

    value: ir.Value
    turned: ir.Value
    scale: ir.Value
    turned_scale: ir.Value


@attrs.define(eq=False)
class _Step:
    """Rewrites the products of one training step.

    Attributes:
        graph: The graph.
        scaling: One of `SCALINGS`.
        count: Products that are of 8 bits now.

    """

    graph: ir.Graph
    scaling: str
    count: int = 0
    _weights: dict[ir.Value, ir.Node] = attrs.field(
        factory=dict[ir.Value, ir.Node], init=False
    )
    _inputs: set[ir.Value] = attrs.field(factory=set[ir.Value], init=False)
    _casts: dict[ir.Value, _Cast] = attrs.field(
        factory=dict[ir.Value, _Cast], init=False
    )
    _replaced: dict[ir.Node, Replacement] = attrs.field(
        factory=dict[ir.Node, Replacement], init=False
    )

    def run(self) -> None:
        """Find the layers, then convert in program order."""
        trained = frozenset(self.graph.parameters)
        for node in self.graph:
            if is_linear(node) and node.operands[1] in trained and _fits(node):
                self._weights[node.operands[1]] = node
                self._inputs.add(node.operands[0])
        if not self._weights:
            return
        self.graph.rewrite(self._visit)
        self.graph.replace(self._replaced)
        self.count = len(self._replaced)
        self.graph.erase_dead(keep=lambda node: node.op not in _VIEWS)
        if self.scaling == DELAYED:
            # Make the scales of the next step of the largest numbers that were seen.
            count = len(self._casts)
            history = self.graph.add_parameter(
                self.graph.fresh_name("fp8.amax_history"),
                ir.TensorType(_F32, (_HISTORY, count)),
                BUFFER,
            )
            location = Location(name="fp8.scales", module="fp8", phase=_BACKWARD)
            attributes: dict[str, ir.AttrValue] = {"kind": "max", "axes": (0,)}
            types = (ir.TensorType(_F32, (count,)),)
            self._add("reduce", (history,), types, attributes, location)

    def _visit(self, node: ir.Node) -> None:
        if is_linear(node) and node.operands[1] in self._weights:
            x, weight = (self._cast(node, value, _E4M3) for value in node.operands[:2])
            kn = node.attributes.flag("weight_is_kn")
            side = (
                (weight.turned, weight.turned_scale)
                if kn
                else (weight.value, weight.scale)
            )
            self._replace(node, (x.value, x.scale), side, node.operands[_BIAS:])
        elif node.op == "matmul" and node.location.phase == _BACKWARD:
            self._visit_gradient(node)

    def _visit_gradient(self, node: ir.Node) -> None:
        """Convert the gradient of an input, or of a weight."""
        left, right = node.operands[:2]
        weight = _source(right)
        if weight in self._weights:
            grad = self._cast(node, left, self._gradients)
            made = self._cast(node, weight, _E4M3)
            # Sums are over features, along which a weight [n, k] lies transposed.
            kn = self._weights[weight].attributes.flag("weight_is_kn")
            side = (made.value, made.scale) if kn else (made.turned, made.turned_scale)
            self._replace(node, (grad.value, grad.scale), side, ())
            return
        if not self._is_of_weight(node):
            return
        before = own_weights.untransposed(left)
        source = self._input_of(before)
        if (x := self._input_of(right)) in self._inputs:
            first = self._cast(node, before, self._gradients)
            second = self._cast(node, x, _E4M3)
        elif source in self._inputs:
            first = self._cast(node, source, _E4M3)
            second = self._cast(node, right, self._gradients)
        else:
            return
        self._replace(
            node,
            (first.turned, first.turned_scale),
            (second.turned, second.turned_scale),
            (),
        )

    def _input_of(self, value: ir.Value) -> ir.Value:
        return value if value in self._inputs else _flat_source(value)

    def _is_of_weight(self, node: ir.Node) -> bool:
        """Whether a product has the shape of a weight, as it lies or transposed."""
        shape = typed(node.results[0]).shape
        shapes = [typed(weight).shape for weight in self._weights]
        return shape in shapes or shape[::-1] in shapes

    @property
    def _gradients(self) -> ir.DType:
        return _E4M3 if self.scaling == BLOCK else _E5M2

    def _replace(
        self,
        node: ir.Node,
        left: tuple[ir.Value, ir.Value],
        right: tuple[ir.Value, ir.Value],
        rest: tuple[ir.Value, ...],
    ) -> None:
        out = typed(node.results[0])
        attributes: dict[str, ir.AttrValue] = {"dtype": out.dtype, "weight_is_nk": True}
        operands = (left[0], right[0], left[1], right[1], *rest)
        self._replaced[node] = Replacement(
            "matmul", operands, ir.Record(attributes), node.results[0], node.location
        )

    def _cast(self, node: ir.Node, value: ir.Value, dtype: ir.DType) -> _Cast:
        """Return a value in 8 bits: one kernel writes it both ways."""
        if value in self._casts:
            return self._casts[value]
        type_ = typed(value)
        rows, columns = product(type_.shape[:-1]), type_.shape[-1]
        shapes = type_.shape, (columns, rows)
        location = attrs.evolve(node.location, name=f"{value.name}.fp8")
        if self.scaling == BLOCK:
            attributes: dict[str, ir.AttrValue] = {
                "axis": -1,
                "block_size": _BLOCK,
                "dtype": dtype,
                "scale_dtype": _E8M0,
                "transposed": True,
            }
            scales = [
                ir.TensorType(_E8M0, (*shape[:-1], ceil_div(shape[-1], _BLOCK)))
                for shape in shapes
            ]
            types = (
                ir.TensorType(dtype, shapes[0]),
                scales[0],
                ir.TensorType(dtype, shapes[1]),
                scales[1],
            )
            made = self._add("dynamic_quantize", (value,), types, attributes, location)
            first, scale, second, other = made.results
            found = _Cast(first, second, scale, other)
        else:
            scale = self._scale(value, location)
            both = ir.TensorType(dtype, shapes[0]), ir.TensorType(dtype, shapes[1])
            attributes = {"dtype": dtype, "transposed": True}
            made = self._add("quantize", (value, scale), both, attributes, location)
            first, second = made.results
            found = _Cast(first, second, scale, scale)
        self._casts[value] = found
        return found

    def _scale(self, value: ir.Value, location: Location) -> ir.Value:
        number = (ir.TensorType(_F32, ()),)
        if self.scaling == CURRENT:
            return self._add("amax", (value,), number, {}, location).results[0]
        said: dict[str, ir.AttrValue] = {"dtype": _F32, "shape": (), "value": 1.0}
        return self._add("constant", (), number, said, location).results[0]

    def _add(
        self,
        op: str,
        operands: tuple[ir.Value, ...],
        types: tuple[ir.TensorType, ...],
        attributes: dict[str, ir.AttrValue],
        location: Location,
    ) -> ir.Node:
        names: list[str] = []
        for number in range(len(types)):
            stem = f"{location.name}.{op}"
            names.append(self.graph.fresh_name(f"{stem}.{number}" if number else stem))
        node = self.graph.add(op, operands, names, attributes, location=location)
        for value, type_ in zip(node.results, types, strict=True):
            value.type = type_
        return node


def _fits(node: ir.Node) -> bool:
    weight = typed(node.operands[1])
    return weight.dtype in PLAIN_FLOATS and not any(
        dim % _MULTIPLE for dim in weight.shape
    )


def _source(value: ir.Value) -> ir.Value:
    while value.producer is not None and value.producer.op in _VIEWS:
        value = value.producer.operands[0]
    return value


def _flat_source(value: ir.Value) -> ir.Value:
    maker = value.producer
    return maker.operands[0] if maker is not None and maker.op == "reshape" else value
