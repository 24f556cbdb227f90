"""ATen ops that exporters keep whole, and that PyTorch writes as several others."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler, Misfit
from perfc.frontends.aten.template import Operand


def _product(node: AtenNode, x: str, weight: str, bias: str = "") -> Operand:
    """Multiply by a weight; of a bias, add it."""
    operands = [node.tensor(x), node.tensor(weight)]
    if bias and node.is_given(bias):
        operands.append(node.tensor(bias))
    return node.helper("linear", operands)[0]


def _fused_cell(kind: str) -> Handler:
    """Two products, and one kernel that adds biases and applies the gates.

    `_thnn_fused_lstm_cell` and `_thnn_fused_gru_cell` (`RNN.cpp`, `RNN.cu`): perfc has
    no op for them, so they are costed by their bytes, which is what they take.
    """

    def handler(node: AtenNode) -> None:
        states = node.tensors("hx") if kind == "lstm" else (node.tensor("hx"),)
        of_input = _product(node, "input", "w_ih")
        weight = node.tensor("w_hh")
        (of_state,) = node.helper("linear", (states[0], weight))
        operands = [of_input, of_state, states[-1]]
        operands += [node.tensor(n) for n in ("b_ih", "b_hh") if node.is_given(n)]
        label = f"aten::_thnn_fused_{kind}_cell"
        node.emit("unknown", operands, {"op": label}, results=range(len(node.results)))

    return handler


def _plain_cell(activation: str) -> Handler:
    """Two products, a sum and an activation."""

    def handler(node: AtenNode) -> None:
        of_input = _product(node, "input", "w_ih", "b_ih")
        of_state = _product(node, "hx", "w_hh", "b_hh")
        (added,) = node.helper("add", (of_input, of_state))
        node.emit(activation, (added,))

    return handler


def _prelu(node: AtenNode) -> None:
    """View the weights, one for each channel, as they are broadcast."""
    x, weight = node.tensor("self"), node.tensor("weight")
    if weight.rank == 1 and x.rank > 2:  # noqa: PLR2004 - behind the channels
        shape = (*weight.type.shape, *(1 for _ in x.type.shape[2:]))
        (weight,) = node.helper("reshape", (weight, node.listed(shape)), {"view": True})
    node.emit("prelu", (x, weight))


def _transform(axes: int | None) -> Handler:
    """A transform of one axis, of two, or of all that are not named."""

    def handler(node: AtenNode) -> None:
        x = node.tensor("self")
        if node.is_given("n") or node.is_given("s"):
            msg = "a signal that is cut or padded first"
            raise Misfit(msg)
        named = node.integers("dim", ()) or tuple(range(-(axes or x.rank), 0))
        node.emit("fft", (x,), {"axes": tuple(axis % x.rank for axis in named)})

    return handler


COMPOSITE_HANDLERS: Mapping[str, Handler] = {
    "aten.lstm_cell": _fused_cell("lstm"),
    "aten.gru_cell": _fused_cell("gru"),
    "aten.rnn_tanh_cell": _plain_cell("tanh"),
    "aten.rnn_relu_cell": _plain_cell("relu"),
    "aten.prelu": _prelu,
    **{
        f"aten.fft_{kind}{suffix}": _transform(axes)
        for kind in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
        for suffix, axes in (("", 1), ("2", 2), ("n", None))
    },
}
"""ATen ops to the functions that write them."""
