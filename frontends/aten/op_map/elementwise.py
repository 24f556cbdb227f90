"""ATen ops that compute element by element, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler
from perfc.frontends.aten.op_map.elementwise_names import (
    BACKWARD,
    BINARY,
    OTHER_NAMES,
    RENAMED,
    SAME,
)
from perfc.ir import AttrValue


def of(op: str, *names: str) -> Handler:
    """Make the handler of an op whose operands are these arguments.

    A number comes as a constant.
    """

    def handler(node: AtenNode) -> None:
        node.emit(op, [node.value(name) for name in names])

    return handler


def _clip(node: AtenNode) -> None:
    """Limits that are numbers are noted; those that are tensors cost as much."""
    attributes: dict[str, AttrValue] = {}
    for name in ("min", "max"):
        limit = node.arguments.get(name)
        if isinstance(limit, int | float):
            attributes[name] = float(limit)
        elif limit is not None:
            attributes["open"] = True
    node.emit("clip", (node.tensor("self"),), attributes)


def _hardtanh(node: AtenNode) -> None:
    attributes: dict[str, AttrValue] = {
        "min": node.number("min_val", -1.0),
        "max": node.number("max_val", 1.0),
    }
    node.emit("clip", (node.tensor("self"),), attributes)


def _hardtanh_backward(node: AtenNode) -> None:
    attributes: dict[str, AttrValue] = {
        "min": node.number("min_val", -1.0),
        "max": node.number("max_val", 1.0),
    }
    operands = (node.tensor("grad_output"), node.tensor("self"))
    node.emit("clip_backward", operands, attributes)


def _approximate(node: AtenNode) -> dict[str, AttrValue]:
    tanh = node.text("approximate", "none") == "tanh"
    return {"approximate": "tanh"} if tanh else {}


def _gelu(node: AtenNode) -> None:
    node.emit("gelu", (node.tensor("self"),), _approximate(node))


def _gelu_backward(node: AtenNode) -> None:
    operands = (node.tensor("grad_output"), node.tensor("self"))
    node.emit("gelu_backward", operands, _approximate(node))


def _leaky_relu_backward(node: AtenNode) -> None:
    operands = (node.tensor("grad_output"), node.tensor("self"))
    slope = node.number("negative_slope", 0.01)
    node.emit("leaky_relu_backward", operands, {"alpha": slope})


def _elu_backward(node: AtenNode) -> None:
    operands = (node.tensor("grad_output"), node.tensor("self_or_result"))
    node.emit("elu_backward", operands, {"alpha": node.number("alpha", 1.0)})


def _along_axis(op: str) -> Handler:
    def handler(node: AtenNode) -> None:
        operands = (node.tensor("grad_output"), node.tensor("output"))
        node.emit(op, operands, {"axis": node.integer("dim")})

    return handler


def _log_sigmoid_forward(node: AtenNode) -> None:
    """The buffer that is the second result is empty on a GPU."""
    node.emit("log_sigmoid", (node.tensor("self"),))


def _glu(node: AtenNode) -> None:
    axis = node.integer("dim", -1)
    node.emit("glu", (node.tensor("self"),), {"axis": axis})


def _glu_backward(node: AtenNode) -> None:
    operands = (node.tensor("grad_output"), node.tensor("self"))
    node.emit("glu_backward", operands, {"axis": node.integer("dim", -1)})


def _prelu_backward(node: AtenNode) -> None:
    names = ("grad_output", "self", "weight")
    operands = [node.tensor(name) for name in names]
    node.emit("prelu_backward", operands, results=(0, 1))


def _hardshrink(node: AtenNode) -> None:
    node.emit("shrink", (node.tensor("self"),), {"hard": True})


def _hardshrink_backward(node: AtenNode) -> None:
    operands = (node.tensor("grad_out"), node.tensor("self"))
    node.emit("shrink_backward", operands, {"hard": True})


def _rrelu(node: AtenNode) -> None:
    """In training slopes are drawn: the kernel moves as much as one that reads them.

    At other times it is a leaky ReLU.
    """
    x, slopes = node.tensor("self"), node.tensor("noise")
    training = node.flag("training")
    node.emit(*(("mul", (x, slopes)) if training else ("leaky_relu", (x,))))


def _rrelu_backward(node: AtenNode) -> None:
    """Multiply by the slopes that were drawn."""
    operands = (node.tensor("grad_output"), node.tensor("noise"))
    node.emit("mul", operands)


def _degrees(node: AtenNode) -> None:
    """`deg2rad` and `rad2deg` multiply by a number."""
    x = node.tensor("self")
    node.emit("mul", (x, node.scalar(math.pi / 180, x.type.dtype)))


ELEMENTWISE_HANDLERS: Mapping[str, Handler] = {
    **{f"aten.{name}": of(name, "self") for name in SAME},
    **{f"aten.{name}": of(op, "self") for name, op in RENAMED.items()},
    **{f"aten.{name}": of(op, "self", "other") for name, op in BINARY.items()},
    **{f"aten.{name}": of(op, *args) for name, (op, *args) in OTHER_NAMES.items()},
    **{f"aten.{name}": of(op, *args) for name, (op, *args) in BACKWARD.items()},
    "aten._softmax_backward_data": _along_axis("softmax_backward"),
    "aten._log_softmax_backward_data": _along_axis("log_softmax_backward"),
    "aten.clamp": _clip,
    "aten.clip": _clip,
    "aten.clamp_min": _clip,
    "aten.clamp_max": _clip,
    "aten.hardtanh": _hardtanh,
    "aten.hardtanh_backward": _hardtanh_backward,
    "aten.gelu": _gelu,
    "aten.gelu_backward": _gelu_backward,
    "aten.leaky_relu_backward": _leaky_relu_backward,
    "aten.elu_backward": _elu_backward,
    "aten.log_sigmoid_forward": _log_sigmoid_forward,
    "aten.glu": _glu,
    "aten.glu_backward": _glu_backward,
    "aten._prelu_kernel_backward": _prelu_backward,
    "aten.hardshrink": _hardshrink,
    "aten.hardshrink_backward": _hardshrink_backward,
    "aten.rrelu_with_noise": _rrelu,
    "aten.rrelu_with_noise_backward": _rrelu_backward,
    "aten.deg2rad": _degrees,
    "aten.rad2deg": _degrees,
}
"""ATen ops to the functions that write them."""
