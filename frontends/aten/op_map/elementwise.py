"""ATen ops that compute element by element, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler
from perfc.ir import AttrValue

_SAME = (
    *("relu", "sigmoid", "tanh", "silu", "mish", "hardswish", "erf", "erfc", "erfinv"),
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt"),
    *("reciprocal", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh"),
    *("asinh", "acosh", "atanh", "square", "neg", "abs", "sign", "ceil", "floor"),
    *("round", "trunc", "frac", "isnan", "isinf", "isfinite", "lgamma", "digamma"),
    *("logit", "bitwise_not", "celu", "selu", "softplus", "leaky_relu"),
    *("polygamma", "i0", "sinc", "nan_to_num", "signbit"),
)
"""Ops of one tensor that have the same name here."""

_RENAMED = {
    "logical_not": "not",
    "log_sigmoid": "log_sigmoid",
    "hardsigmoid": "hardsigmoid",
    "softshrink": "shrink",
    "isposinf": "isinf",
    "isneginf": "isinf",
    "threshold": "thresholded_relu",
    "relu6": "clip",
    "sgn": "sign",
    "angle": "sign",
    "elu": "elu",
    "negative": "neg",
    "absolute": "abs",
    "arctan": "atan",
    "arccos": "acos",
    "arcsin": "asin",
    "conj_physical": "neg",
    "_conj_physical": "neg",
    "special_expit": "sigmoid",
    "special_erf": "erf",
    "special_log1p": "log1p",
    "special_expm1": "expm1",
}
"""Ops of one tensor that have another name here."""

_BINARY = {
    "add": "add",
    "sub": "sub",
    "subtract": "sub",
    "mul": "mul",
    "multiply": "mul",
    "div": "div",
    "divide": "div",
    "true_divide": "div",
    "floor_divide": "floor_divide",
    "remainder": "mod",
    "fmod": "fmod",
    "maximum": "maximum",
    "minimum": "minimum",
    "fmax": "maximum",
    "fmin": "minimum",
    "atan2": "atan2",
    "hypot": "hypot",
    "copysign": "copysign",
    "logaddexp": "logaddexp",
    "logaddexp2": "logaddexp",
    "ldexp": "mul",
    "special_xlog1py": "xlogy",
    "xlogy": "xlogy",
    "special_xlogy": "xlogy",
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor",
    "bitwise_left_shift": "bit_shift",
    "bitwise_right_shift": "bit_shift",
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "__iand__": "bitwise_and",
    "__ior__": "bitwise_or",
    "__lshift__": "bit_shift",
    "__rshift__": "bit_shift",
    "logical_and": "and",
    "logical_or": "or",
    "logical_xor": "xor",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "greater": "greater",
    "less": "less",
    "greater_equal": "greater_equal",
    "less_equal": "less_equal",
    "not_equal": "not_equal",
}
"""Ops of `self` and `other`; the factor `alpha` of some costs nothing."""

_OTHER_NAMES = {
    "pow": ("pow", "self", "exponent"),
    "float_power": ("pow", "self", "exponent"),
    "where": ("where", "condition", "self", "other"),
    "addcmul": ("addcmul", "self", "tensor1", "tensor2"),
    "addcdiv": ("addcdiv", "self", "tensor1", "tensor2"),
    "lerp": ("lerp", "self", "end", "weight"),
    "_prelu_kernel": ("prelu", "self", "weight"),
    "rsub": ("sub", "other", "self"),
    "masked_fill": ("masked_fill", "self", "mask", "value"),
}
"""Op, and the arguments that are its operands."""

_BACKWARD = {
    "threshold_backward": ("relu_backward", "grad_output", "self"),
    "sigmoid_backward": ("sigmoid_backward", "grad_output", "output"),
    "tanh_backward": ("tanh_backward", "grad_output", "output"),
    "silu_backward": ("silu_backward", "grad_output", "self"),
    "mish_backward": ("mish_backward", "grad_output", "self"),
    "hardswish_backward": ("hardswish_backward", "grad_output", "self"),
    "hardsigmoid_backward": ("hardsigmoid_backward", "grad_output", "self"),
    "softplus_backward": ("softplus_backward", "grad_output", "self"),
    "native_dropout_backward": ("dropout_backward", "grad_output", "mask"),
    "_softmax_backward_data": ("softmax_backward", "grad_output", "output"),
    "_log_softmax_backward_data": ("log_softmax_backward", "grad_output", "output"),
    "logit_backward": ("logit_backward", "grad_output", "self"),
    "log_sigmoid_backward": ("log_sigmoid_backward", "grad_output", "self"),
    "softshrink_backward": ("shrink_backward", "grad_output", "self"),
}
"""Gradients, and the arguments that are their operands."""


def of(op: str, *names: str) -> Handler:
    """Make the handler of an op whose operands are these arguments."""

    def handler(node: AtenNode) -> None:
        node.emit(op, [node.value(name) for name in names])

    return handler


def _binary(op: str) -> Handler:
    """A number comes as a constant; a gradient that is sparse goes its own way."""

    def handler(node: AtenNode) -> None:
        node.emit(op, (node.value("self"), node.value("other")))

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
    **{f"aten.{name}": of(name, "self") for name in _SAME},
    **{f"aten.{name}": of(op, "self") for name, op in _RENAMED.items()},
    **{f"aten.{name}": _binary(op) for name, op in _BINARY.items()},
    **{f"aten.{name}": of(op, *args) for name, (op, *args) in _OTHER_NAMES.items()},
    **{f"aten.{name}": of(op, *args) for name, (op, *args) in _BACKWARD.items()},
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
