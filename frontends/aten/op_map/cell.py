"""ATen's cells of recurrent layers, and what CUDA runs for them after the matmuls."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler
from perfc.frontends.aten.template import Operand
from perfc.ir import AttrValue


def _matmul(node: AtenNode, x: Operand, weight: str, bias: str = "") -> Operand:
    """Multiply by a weight; of a bias, add it."""
    operands = [x, node.tensor(weight)]
    if bias and node.is_given(bias):
        operands.append(node.tensor(bias))
    return node.helper("linear", operands)[0]


def _given(node: AtenNode, *names: str) -> list[Operand]:
    return [node.tensor(name) for name in names if node.is_given(name)]


def _gates(node: AtenNode, kind: str, operands: list[Operand]) -> None:
    """Write the fused kernel: its states, and what it keeps, if the call returns it."""
    made = node.helper(
        "recurrent_cell", operands, {"kind": kind}, count=3 if kind == "lstm" else 2
    )
    for index in range(len(node.results)):
        node.alias(index, made[index])


def _whole_cell(kind: str) -> Handler:
    """Two matmuls without their biases, which the fused kernel adds."""

    def handler(node: AtenNode) -> None:
        states = node.tensors("hx") if kind == "lstm" else (node.tensor("hx"),)
        of_input = _matmul(node, node.tensor("input"), "w_ih")
        of_state = _matmul(node, states[0], "w_hh")
        biases = _given(node, "b_ih", "b_hh")
        _gates(node, kind, [of_input, of_state, states[-1], *biases])

    return handler


def _fused_cell(kind: str, state: str) -> Handler:
    def handler(node: AtenNode) -> None:
        names = ("input_gates", "hidden_gates", state, "input_bias", "hidden_bias")
        _gates(node, kind, _given(node, *names))

    return handler


def _fused_backward(kind: str) -> Handler:
    """The kernel, then a sum for each gradient of a bias."""

    def handler(node: AtenNode) -> None:
        names = ("grad_hy", "grad_cy", "cx", "cy", "workspace")
        count = 2 if kind == "lstm" else 3
        operands = _given(node, *names)
        made = node.helper(
            "recurrent_cell_backward", operands, {"kind": kind}, count=count
        )
        for index, operand in enumerate(made):
            node.alias(index, operand)
        if node.flag("has_bias"):
            for place, gates in enumerate(made[:-1]):
                added: dict[str, AttrValue] = {"kind": "sum", "axes": (0,)}
                node.emit("reduce", (gates,), added, results=(count + place,))

    return handler


def _plain_cell(activation: str) -> Handler:
    """Two matmuls, a sum and an activation."""

    def handler(node: AtenNode) -> None:
        of_input = _matmul(node, node.tensor("input"), "w_ih", "b_ih")
        of_state = _matmul(node, node.tensor("hx"), "w_hh", "b_hh")
        (added,) = node.helper("add", (of_input, of_state))
        node.emit(activation, (added,))

    return handler


CELL_HANDLERS: Mapping[str, Handler] = {
    "aten.lstm_cell": _whole_cell("lstm"),
    "aten.gru_cell": _whole_cell("gru"),
    "aten._thnn_fused_lstm_cell": _fused_cell("lstm", "cx"),
    "aten._thnn_fused_gru_cell": _fused_cell("gru", "hx"),
    "aten._thnn_fused_lstm_cell_backward_impl": _fused_backward("lstm"),
    "aten._thnn_fused_gru_cell_backward": _fused_backward("gru"),
    "aten.rnn_tanh_cell": _plain_cell("tanh"),
    "aten.rnn_relu_cell": _plain_cell("relu"),
}
"""ATen ops to the functions that write them."""
