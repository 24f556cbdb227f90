"""ATen ops that normalise or drop elements, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfc.frontends.aten.node import AtenNode, Handler
from perfc.frontends.aten.template import Operand
from perfc.ir import AttrValue

GRADIENTS = ("x", "weight", "bias")
"""Names of the gradients of a layer, in the order of ATen's results."""


def emit_wanted(
    node: AtenNode,
    op: str,
    operands: Sequence[Operand],
    attributes: Mapping[str, AttrValue] | None = None,
    names: Sequence[str] = GRADIENTS,
) -> None:
    """Add the step of a backward op: the gradients that are asked for are there."""
    wanted = [
        (index, name)
        for index, name in enumerate(names)
        if index < len(node.results) and node.results[index] is not None
    ]
    given = dict(attributes or {})
    given["wants"] = tuple(name for _, name in wanted)
    node.emit(op, operands, given, results=[index for index, _ in wanted])


def _scaled(node: AtenNode) -> list[Operand]:
    """Return the input with scale and bias, as far as they are there."""
    scale = [node.optional(name) for name in ("weight", "bias")]
    return [node.tensor("input"), *(operand for operand in scale if operand)]


def _axis(node: AtenNode) -> int:
    return node.tensor("input").rank - len(node.dims("normalized_shape"))


def _layer_norm(op: str) -> Handler:
    def handler(node: AtenNode) -> None:
        attributes: dict[str, AttrValue] = {
            "axis": _axis(node),
            "epsilon": node.number("eps", 1e-5),
        }
        results = range(len(node.results)) if op == "layer_norm" else (0,)
        node.emit(op, _scaled(node), attributes, results=results)

    return handler


def _layer_norm_backward(op: str) -> Handler:
    def handler(node: AtenNode) -> None:
        operands = _with_weight(node)
        emit_wanted(node, op, operands, {"axis": _axis(node)})

    return handler


def _with_weight(node: AtenNode) -> list[Operand]:
    grad = "grad_out" if node.is_given("grad_out") else "grad_output"
    operands = [node.tensor(grad), node.tensor("input")]
    if node.is_given("weight"):
        operands.append(node.tensor("weight"))
    return operands


def _group_norm(node: AtenNode) -> None:
    groups = "num_groups" if node.is_given("num_groups") else "group"
    attributes: dict[str, AttrValue] = {
        "groups": node.integer(groups),
        "epsilon": node.number("eps", 1e-5),
    }
    node.emit("group_norm", _scaled(node), attributes)


def _group_norm_backward(node: AtenNode) -> None:
    attributes: dict[str, AttrValue] = {"groups": node.integer("group")}
    emit_wanted(node, "group_norm_backward", _with_weight(node), attributes)


def _instance_norm(node: AtenNode) -> None:
    """A group norm with a group for each channel."""
    channels = node.tensor("input").type.shape[1]
    attributes: dict[str, AttrValue] = {"epsilon": node.number("eps", 1e-5)}
    if isinstance(channels, int):
        attributes["groups"] = channels
    node.emit("group_norm", _scaled(node), attributes)


def _weight_norm(node: AtenNode) -> None:
    operands = (node.tensor("v"), node.tensor("g"))
    attributes: dict[str, AttrValue] = {"axis": node.integer("dim", 0)}
    if len(node.results) == 1:  # `_weight_norm`, which keeps the norms to itself
        node.alias(0, node.helper("weight_norm", operands, attributes, count=2)[0])
        return
    node.emit("weight_norm", operands, attributes, results=range(len(node.results)))


def _weight_norm_backward(node: AtenNode) -> None:
    names = ("grad_w", "saved_v", "saved_g", "saved_norms")
    operands = [node.tensor(name) for name in names]
    attributes: dict[str, AttrValue] = {"axis": node.integer("dim")}
    emit_wanted(node, "weight_norm_backward", operands, attributes)


def _batch_norm(node: AtenNode) -> None:
    """Statistics that nobody keeps, and a scale left out, are constants."""
    x = node.tensor("input")
    training = node.name in _TRAINING or node.flag("training")
    epsilon = node.number("epsilon" if node.is_given("epsilon") else "eps", 1e-5)
    attributes: dict[str, AttrValue] = {"epsilon": epsilon, "training": training}
    operands = [x, *(_channels(node, x, name) for name in _CHANNELS)]
    # None has a type where they follow from the op: all are wanted then.
    results = [i for i, type_ in enumerate(node.results) if type_ is not None]
    wanted = results or range(len(node.results))
    node.emit("batch_norm", operands, attributes, results=wanted[: 1 + len(_CHANNELS)])


_CHANNELS = ("weight", "bias", "running_mean", "running_var")
_TRAINING = ("_batch_norm_with_update", "_batch_norm_with_update_functional")


def _channels(node: AtenNode, x: Operand, name: str) -> Operand:
    found = node.optional(name)
    if found is not None:
        return found
    shape: dict[str, AttrValue] = {"dtype": x.type.dtype, "shape": x.type.shape[1:2]}
    return node.helper("constant", (), shape)[0]


def _batch_norm_backward(node: AtenNode) -> None:
    """Evaluation normalises with constants; cuDNN's own op is for training."""
    training = next(
        (node.flag(name) for name in ("train", "update") if node.is_given(name)), True
    )
    operands = _with_weight(node)
    emit_wanted(node, "batch_norm_backward", operands, {"training": training})


def _dropout(node: AtenNode) -> None:
    """Emit a dropout; without training the result is the operand."""
    x = node.operands[0]
    if not node.flag("train", default=True):
        node.alias(0, x)
        return
    node.emit("dropout", (x,), results=range(len(node.results)))


NORMALIZATION_HANDLERS: Mapping[str, Handler] = {
    "aten.layer_norm": _layer_norm("layer_norm"),
    "aten.native_layer_norm": _layer_norm("layer_norm"),
    "aten.native_layer_norm_backward": _layer_norm_backward("layer_norm_backward"),
    "aten.rms_norm": _layer_norm("rms_norm"),
    "aten._fused_rms_norm": _layer_norm("rms_norm"),
    "aten._fused_rms_norm_backward": _layer_norm_backward("rms_norm_backward"),
    "aten.group_norm": _group_norm,
    "aten.native_group_norm": _group_norm,
    "aten.native_group_norm_backward": _group_norm_backward,
    "aten.instance_norm": _instance_norm,
    "aten._weight_norm_interface": _weight_norm,
    "aten._weight_norm": _weight_norm,
    "aten._weight_norm_interface_backward": _weight_norm_backward,
    **dict.fromkeys(
        (
            *("aten.batch_norm", "aten.native_batch_norm", "aten.cudnn_batch_norm"),
            *("aten.miopen_batch_norm", "aten._native_batch_norm_legit"),
            *("aten._native_batch_norm_legit_functional", "aten._batch_norm_no_update"),
            *("aten._native_batch_norm_legit_no_training",),
            *(f"aten.{name}" for name in _TRAINING),
        ),
        _batch_norm,
    ),
    **dict.fromkeys(
        (
            *("aten.native_batch_norm_backward", "aten.cudnn_batch_norm_backward"),
            *("aten.miopen_batch_norm_backward", "aten.batch_norm_backward"),
        ),
        _batch_norm_backward,
    ),
    "aten.dropout": _dropout,
    "aten.native_dropout": _dropout,
    "aten._fused_dropout": _dropout,
    "aten.feature_dropout": _dropout,
    "aten.alpha_dropout": _dropout,
}
"""ATen ops to the functions that write them."""
