"""ATen ops that compute losses, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler, Misfit
from perfc.frontends.aten.template import Operand
from perfc.ir import AttrValue

_REDUCTIONS = ("none", "mean", "sum")
_KINDS = {
    "mse_loss": "mse",
    "l1_loss": "l1",
    "smooth_l1_loss": "smooth_l1",
    "huber_loss": "huber",
    "binary_cross_entropy": "bce",
    "binary_cross_entropy_with_logits": "bce_with_logits",
    "soft_margin_loss": "soft_margin",
    "multi_margin_loss": "multi_margin",
    "multilabel_margin_loss": "multilabel_margin",
}
_WITH_BACKWARD = (
    *("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"),
    *("soft_margin_loss", "multi_margin_loss", "multilabel_margin_loss"),
)
"""Losses whose gradient is an op of its own."""


def _reduction(node: AtenNode) -> str:
    code = node.integer("reduction", 1)
    if not 0 <= code < len(_REDUCTIONS):
        msg = f"reduction {code}"
        raise Misfit(msg)
    return _REDUCTIONS[code]


def _weights(node: AtenNode) -> list[Operand]:
    names = ("weight", "pos_weight")
    return [node.tensor(name) for name in names if node.is_given(name)]


def _loss(kind: str) -> Handler:
    def handler(node: AtenNode) -> None:
        operands = (node.tensor("self"), node.tensor("target"), *_weights(node))
        attributes: dict[str, AttrValue] = {
            "kind": kind,
            "reduction": _reduction(node),
        }
        node.emit("loss", operands, attributes)

    return handler


def _loss_backward(kind: str) -> Handler:
    def handler(node: AtenNode) -> None:
        saved = (node.tensor("self"), node.tensor("target"), *_weights(node))
        attributes: dict[str, AttrValue] = {
            "kind": kind,
            "reduction": _reduction(node),
        }
        node.emit("loss_backward", (node.tensor("grad_output"), *saved), attributes)

    return handler


def _nll_loss(node: AtenNode) -> None:
    """The total weight is another result of the kernel."""
    operands = (node.tensor("self"), node.tensor("target"), *_weights(node))
    node.emit("nll_loss", operands, {"reduction": _reduction(node)})


def _nll_loss_backward(node: AtenNode) -> None:
    saved = (node.tensor("self"), node.tensor("target"), *_weights(node))
    operands = (node.tensor("grad_output"), *saved)
    node.emit("nll_loss_backward", operands, {"reduction": _reduction(node)})


def _cross_entropy(node: AtenNode) -> None:
    """Labels: a softmax and a lookup. Probabilities are not known here."""
    scores, labels = node.tensor("self"), node.tensor("target")
    axis = min(1, scores.rank - 1)
    (likely,) = node.helper("log_softmax", (scores,), {"axis": axis})
    operands = (likely, labels, *_weights(node))
    node.emit("nll_loss", operands, {"reduction": _reduction(node)})


def _lengths(node: AtenNode) -> list[Operand]:
    """Lengths that are tensors, which the host has to read; lists are its own."""
    names = ("input_lengths", "target_lengths")
    if not all(isinstance(node.arguments.get(name), Operand) for name in names):
        return []
    return [node.tensor(name) for name in names]


def _ctc_loss(node: AtenNode) -> None:
    """The second result says how many labels the longest target has."""
    walked = node.result(1).shape[-1]
    if not isinstance(walked, int):
        msg = "the longest target is a symbol"
        raise Misfit(msg)
    operands = (node.tensor("log_probs"), node.tensor("targets"), *_lengths(node))
    attributes: dict[str, AttrValue] = {
        "longest": walked // 2,
        "zero_infinity": node.flag("zero_infinity"),
    }
    node.emit("ctc_loss", operands, attributes, results=(0, 1))


def _ctc_loss_backward(node: AtenNode) -> None:
    names = ("grad", "log_probs", "targets", "neg_log_likelihood", "log_alpha")
    operands = [node.tensor(name) for name in names]
    attributes: dict[str, AttrValue] = {"zero_infinity": node.flag("zero_infinity")}
    node.emit("ctc_loss_backward", (*operands, *_lengths(node)), attributes)


LOSS_HANDLERS: Mapping[str, Handler] = {
    **{f"aten.{name}": _loss(kind) for name, kind in _KINDS.items()},
    "aten.multilabel_margin_loss_forward": _loss("multilabel_margin"),
    **{f"aten.{n}_backward": _loss_backward(_KINDS[n]) for n in _WITH_BACKWARD},
    **dict.fromkeys(
        (
            *("aten.nll_loss", "aten.nll_loss_forward", "aten.nll_loss_nd"),
            *("aten.nll_loss2d", "aten.nll_loss2d_forward"),
        ),
        _nll_loss,
    ),
    "aten.nll_loss_backward": _nll_loss_backward,
    "aten.nll_loss2d_backward": _nll_loss_backward,
    "aten._ctc_loss": _ctc_loss,
    "aten._ctc_loss_backward": _ctc_loss_backward,
    "aten.cross_entropy_loss": _cross_entropy,
}
"""ATen ops to the functions that write them."""
