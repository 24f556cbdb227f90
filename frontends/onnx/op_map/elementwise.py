"""ONNX ops that compute element by element."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.frontends.onnx.node import Handler, OnnxNode, plain
from perfc.ir import AttrValue, Value

_SAME: Mapping[str, str] = {
    **{
        name: name.lower()
        for name in (
            *("Relu", "Elu", "Celu", "Selu", "Shrink", "Sigmoid"),
            *("Tanh", "Softplus", "Softsign", "PRelu"),
            *("Erf", "Exp", "Log", "Sqrt", "Reciprocal", "Neg", "Abs", "Sign"),
            *("Ceil", "Floor", "Round", "IsNaN", "IsInf", "Not"),
            *("Sin", "Cos", "Tan", "Asin", "Acos", "Atan"),
            *("Sinh", "Cosh", "Asinh", "Acosh", "Atanh"),
            *("Add", "Sub", "Mul", "Div", "Pow"),
            *("Equal", "Less", "Greater", "And", "Or", "Xor", "Where"),
        )
    },
    "LeakyRelu": "leaky_relu",
    "ThresholdedRelu": "thresholded_relu",
    "LessOrEqual": "less_equal",
    "GreaterOrEqual": "greater_equal",
    "BitShift": "bit_shift",
    "BitwiseNot": "bitwise_not",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
}
"""Ops whose operands are the same and whose attributes do not matter here."""

_CHAINS = {"Max": "maximum", "Min": "minimum", "Sum": "add", "Mean": "add"}


def _chain(node: OnnxNode) -> bool:
    """Any number of operands in ONNX, two here."""
    values = node.present
    if not values:
        return False
    op, mean = _CHAINS[node.op], node.op == "Mean"
    current = values[0]
    for value in values[1 : len(values) if mean else -1]:
        current = node.emit_helper(op, (current, value))
    if mean:
        node.emit("div", (current, node.number_constant(float(len(values)))))
    elif len(values) > 1:
        node.emit(op, (current, values[-1]))
    else:
        node.emit("identity", (current,))
    return True


def _mod(node: OnnxNode) -> bool:
    node.emit("fmod" if node.integer("fmod", 0) else "mod")
    return True


def _clip(node: OnnxNode) -> bool:
    """The limits are attributes before opset 11, operands after; noted if known."""
    attributes: dict[str, AttrValue] = {}
    for index, name in enumerate(("min", "max"), start=1):
        limit = node.attributes.get(name)
        limit = node.constant_number(index) if limit is None else limit
        limit = node.constant_integer(index) if limit is None else limit
        if isinstance(limit, int | float):
            attributes[name] = float(limit)
        elif node.operand(index) is not None:
            attributes["open"] = True
    node.emit("clip", node.present[:1], attributes)
    return True


def _swished(node: OnnxNode) -> Value:
    """Write `x * sigmoid(alpha * x)`, SiLU where alpha is 1, and return it."""
    alpha, x = node.number("alpha", 1.0), node.required(0)
    if alpha == 1:
        return node.emit("silu", (x,)).results[0]
    scaled = node.emit_helper("mul", (x, node.number_constant(alpha)))
    gate = node.emit_helper("sigmoid", (scaled,))
    return node.emit("mul", (x, gate)).results[0]


def _swish(node: OnnxNode) -> bool:
    _swished(node)
    return True


def _swiglu(node: OnnxNode) -> bool:
    """A swish of the first, times the second."""
    name = node.graph.fresh_name(f"{node.results[0]}.silu")
    gate = _swished(attrs.evolve(node, results=(name,)))
    node.emit("mul", (gate, node.required(1)))
    return True


ELEMENTWISE_HANDLERS: Mapping[str, Handler] = {
    **{name: plain(op) for name, op in _SAME.items()},
    **dict.fromkeys(_CHAINS, _chain),
    "Mod": _mod,
    "Clip": _clip,
    "HardSigmoid": plain("hardsigmoid", alpha=0.2, beta=0.5),
    "Swish": _swish,
    "SwiGLU": _swiglu,
}
