"""ONNX op types to perfc ops."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.onnx.node import Handler, OnnxNode
from perfc.frontends.onnx.op_map_control import CONTROL_HANDLERS
from perfc.frontends.onnx.op_map_embedding import EMBEDDING_HANDLERS
from perfc.frontends.onnx.op_map_shapes import SHAPE_HANDLERS
from perfc.frontends.onnx.op_map_tensors import TENSOR_HANDLERS

_SAME: Mapping[str, str] = {
    **{
        name: name.lower()
        for name in (
            *("Relu", "Sigmoid", "Tanh", "Gelu", "Erf", "Exp", "Log", "Sqrt"),
            *("Reciprocal", "Neg", "Abs", "Not", "Add", "Sub", "Mul", "Div"),
            *("Pow", "Equal", "Less", "Greater", "And", "Or", "Where"),
            *("Identity", "Size", "Range"),
        )
    },
    "IsNaN": "isnan",
    "MatMul": "matmul",
    "CastLike": "cast_like",
}
"""Ops whose operands are the same and whose attributes do not matter here."""

_OPERANDS = {"Mod": "mod", "Max": "maximum", "Min": "minimum"}


def _elementwise_pair(node: OnnxNode) -> bool:
    """`Max` and `Min` take any number of operands in ONNX, two here."""
    if len(node.present) != 2:  # noqa: PLR2004 - a pair
        return False
    node.emit(_OPERANDS[node.op])
    return True


def _clip(node: OnnxNode) -> bool:
    node.emit("clip", node.present[:1])
    return True


def _dropout(node: OnnxNode) -> bool:
    """Inference keeps everything; with a mask, or in training, it is unknown."""
    if len(node.results) > 1 or node.operand(2) is not None:
        return False
    node.emit("identity", node.present[:1])
    return True


HANDLERS: Mapping[str, Handler] = {
    **SHAPE_HANDLERS,
    **TENSOR_HANDLERS,
    **CONTROL_HANDLERS,
    **EMBEDDING_HANDLERS,
    **dict.fromkeys(_OPERANDS, _elementwise_pair),
    "Clip": _clip,
    "Dropout": _dropout,
}
"""ONNX op type to the function that writes it."""


def is_known(op: str) -> bool:
    """Whether there is a handler for *op*."""
    return op in _SAME or op in HANDLERS


def lower_node(node: OnnxNode) -> bool:
    """Write *node* into its graph; False if perfc has no op for it.

    Raises:
        UnsupportedModelError: an attribute is of the wrong kind.

    """
    if not is_known(node.op):
        return False
    if not node.results:
        return True  # nobody reads what it computes
    if node.op in _SAME:
        node.emit(_SAME[node.op])
        return True
    return HANDLERS[node.op](node)
