"""ATen's recurrent layers, stacked in one call, and their gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from perfc.frontends.aten.node import AtenNode, Handler, Misfit
from perfc.frontends.aten.template import Operand
from perfc.ir import AttrValue
from perfc.ir.ops.recurrent import RECURRENT_STATES, reserved_vectors

_MODES = ("rnn", "rnn", "lstm", "gru")
"""Codes of `cudnnRNNMode_t`."""

_RESERVE = 3
"""Result of `_cudnn_rnn`."""


@attrs.frozen(eq=False)
class _Stack:
    """What a call says of its layers.

    Attributes:
        kind: Of the layers.
        weights: All of them: of each layer and direction those of the input and of
            the recurrence, then their biases if there are any, then the one that
            projects the state if it is projected.
        layers: How many layers.
        directions: One or two.
        batch_first: Whether the batch is the first axis.
        projected: Whether the state of an LSTM is projected to a smaller one.

    """

    kind: str
    weights: tuple[Operand, ...]
    layers: int
    directions: int
    batch_first: bool
    projected: bool

    def cells(self, layer: int) -> Iterator[Mapping[str, int]]:
        """Yield the places of the weights of each direction of a layer, by name.

        The second bias is added to the first: it is not there.
        """
        size = len(self.weights) // max(self.layers * self.directions, 1)
        names = ["weight", "recurrence"]
        if size - self.projected > len(names):
            names.append("bias")
        for direction in range(self.directions):
            start = (layer * self.directions + direction) * size
            places = {name: start + index for index, name in enumerate(names)}
            if self.projected:
                places["projection"] = start + size - 1
            yield places

    def of(self, places: Mapping[str, int]) -> list[Operand]:
        """Return the weights at these places."""
        return [self.weights[place] for place in places.values()]

    @property
    def attributes(self) -> dict[str, AttrValue]:
        """Attributes of the op."""
        flags = {"batch_first": self.batch_first, "projected": self.projected}
        given = {name: flag for name, flag in flags.items() if flag}
        return {"kind": self.kind, **given}


def _stack(node: AtenNode, kind: str) -> _Stack:
    weights = node.tensors("weight" if node.is_given("weight") else "params")
    layers = node.integer("num_layers")
    directions = 2 if node.flag("bidirectional") else 1
    projected = node.integer("proj_size", 0) > 0
    if "proj_size" not in node.arguments:  # `aten::lstm`: told by how many there are
        projected = kind == "lstm" and len(weights) % (2 * layers * directions) > 0
    return _Stack(
        kind, weights, layers, directions, node.flag("batch_first"), projected
    )


def _run(node: AtenNode, stack: _Stack, reserve: int | None = None) -> list[Operand]:
    """Layer after layer; the last states are what the same kernels leave behind.

    Return what is kept for backward, *reserve* vectors a step, by the first of them.
    """
    x = node.tensor("input")
    kept: list[Operand] = []
    for layer in range(stack.layers):
        ends: list[Operand] = []
        for places in stack.cells(layer):
            operands = (x, *stack.of(places))
            out, *others = _cell(node, operands, stack, 0 if kept else reserve)
            ends.append(out)
            kept += others[-1:]
        x = ends[0]
        if len(ends) > 1:
            (x,) = node.helper("concat", ends, {"axis": x.rank - 1})
    if x.type != node.result():
        msg = f"layers that make {x.type}, not {node.result()}"
        raise Misfit(msg)
    node.alias(0, x)
    return kept


def _cell(
    node: AtenNode, operands: Sequence[Operand], stack: _Stack, reserve: int | None
) -> Sequence[Operand]:
    attributes = stack.attributes
    if reserve is not None:
        attributes["reserve"] = reserve
    count = 2 + RECURRENT_STATES[stack.kind] if reserve else 1
    return node.helper("recurrent", operands, attributes, count=count)


def _layers(kind: str) -> Handler:
    def handler(node: AtenNode) -> None:
        _run(node, _stack(node, kind))

    return handler


def _kind(node: AtenNode) -> str:
    code = node.integer("mode")
    if not 0 <= code < len(_MODES):
        msg = f"mode {code}"
        raise Misfit(msg)
    return _MODES[code]


def _cudnn(node: AtenNode) -> None:
    """Training keeps what backward needs of all layers in one tensor."""
    stack = _stack(node, _kind(node))
    if not node.flag("train"):
        _run(node, stack)
        return
    vectors = reserved_vectors(stack.kind, stack.layers, stack.directions)
    (kept,) = _run(node, stack, vectors)
    node.alias(_RESERVE, kept)


def _cudnn_backward(node: AtenNode) -> None:
    """Emit layers from last to first; what one read is as large as what it made."""
    stack = _stack(node, _kind(node))
    grad = node.tensor("grad_output")
    first = len(node.results) - len(stack.weights)
    reserve = (node.tensor("reserve"),) if node.is_given("reserve") else ()
    for layer in reversed(range(stack.layers)):
        x = node.tensor("output" if layer else "input")
        below = grad
        for places in stack.cells(layer):
            wants = ("x", *places)
            attributes: dict[str, AttrValue] = {**stack.attributes, "wants": wants}
            operands = (grad, x, *stack.of(places), *reserve)
            made = node.helper(
                "recurrent_backward", operands, attributes, count=len(wants)
            )
            below = made[0]
            for place, gradient in zip(places.values(), made[1:], strict=True):
                if node.results[first + place] is not None:
                    node.alias(first + place, gradient)
        grad = below
    if node.results[0] is not None:
        node.alias(0, grad)


RECURRENT_HANDLERS: Mapping[str, Handler] = {
    "aten.lstm": _layers("lstm"),
    "aten.gru": _layers("gru"),
    "aten.rnn_tanh": _layers("rnn"),
    "aten.rnn_relu": _layers("rnn"),
    "aten._cudnn_rnn": _cudnn,
    "aten._cudnn_rnn_backward": _cudnn_backward,
}
"""ATen ops to the functions that write them."""
