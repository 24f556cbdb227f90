"""ATen's recurrent layers, stacked in one call, and their gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from perfc.frontends.aten.node import AtenNode, Handler, Misfit
from perfc.frontends.aten.template import Operand
from perfc.ir import AttrValue

_MODES = ("rnn", "rnn", "lstm", "gru")
"""Codes of `cudnnRNNMode_t`."""

_WANTS = ("x", "weight", "recurrence", "bias")


@attrs.frozen(eq=False)
class _Stack:
    """What a call says of its layers.

    Attributes:
        kind: Of the layers.
        weights: All of them: of each layer and direction those of the input and of
            the recurrence, then their biases if there are any.
        layers: How many layers.
        directions: One or two.
        batch_first: Whether the batch is the first axis.

    """

    kind: str
    weights: tuple[Operand, ...]
    layers: int
    directions: int
    batch_first: bool

    def cells(self, layer: int) -> Iterator[tuple[int, tuple[Operand, ...]]]:
        """Yield the weights of each direction of a layer, and where they begin."""
        size = len(self.weights) // max(self.layers * self.directions, 1)
        for direction in range(self.directions):
            start = (layer * self.directions + direction) * size
            yield start, self.weights[start : start + size]

    @property
    def attributes(self) -> dict[str, AttrValue]:
        """Attributes of the op."""
        first: dict[str, AttrValue] = {"batch_first": True} if self.batch_first else {}
        return {"kind": self.kind, **first}


def _stack(node: AtenNode, kind: str) -> _Stack:
    if node.integer("proj_size", 0):
        msg = "a projected LSTM"
        raise Misfit(msg)
    return _Stack(
        kind,
        node.tensors("weight" if node.is_given("weight") else "params"),
        node.integer("num_layers"),
        2 if node.flag("bidirectional") else 1,
        node.flag("batch_first"),
    )


def _run(node: AtenNode, stack: _Stack) -> None:
    """Layer after layer; the last states are what the same kernels leave behind."""
    x = node.tensor("input")
    for layer in range(stack.layers):
        ends: list[Operand] = []
        for _, weights in stack.cells(layer):
            operands = (x, *weights[:3])  # the second bias is added to the first
            ends += node.helper("recurrent", operands, stack.attributes)
        x = ends[0]
        if len(ends) > 1:
            (x,) = node.helper("concat", ends, {"axis": x.rank - 1})
    if x.type != node.result():
        msg = f"layers that make {x.type}, not {node.result()}"
        raise Misfit(msg)
    node.alias(0, x)


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
    _run(node, _stack(node, _kind(node)))


def _cudnn_backward(node: AtenNode) -> None:
    """From the last layer to the first; what a layer read is as large as it made."""
    stack = _stack(node, _kind(node))
    grad = node.tensor("grad_output")
    first = len(node.results) - len(stack.weights)
    for layer in reversed(range(stack.layers)):
        x = node.tensor("output" if layer else "input")
        below = grad
        for start, weights in stack.cells(layer):
            wants = _WANTS[: 1 + min(len(weights), 3)]
            attributes: dict[str, AttrValue] = {**stack.attributes, "wants": wants}
            operands = (grad, x, *weights[:3])
            made = node.helper(
                "recurrent_backward", operands, attributes, count=len(wants)
            )
            below = made[0]
            for index, gradient in enumerate(made[1:]):
                place = first + start + index
                if node.results[place] is not None:
                    node.alias(place, gradient)
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
