"""ONNX op types to perfc ops."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.onnx.node import Handler, OnnxNode, plain
from perfc.frontends.onnx.op_map_convolution import CONVOLUTION_HANDLERS
from perfc.frontends.onnx.op_map_elementwise import ELEMENTWISE_HANDLERS
from perfc.frontends.onnx.op_map_indexing import INDEXING_HANDLERS
from perfc.frontends.onnx.op_map_quantization import QUANTIZATION_HANDLERS
from perfc.frontends.onnx.op_map_sequences import SEQUENCE_HANDLERS
from perfc.frontends.onnx.op_map_shapes import SHAPE_HANDLERS
from perfc.frontends.onnx.op_map_tensors import TENSOR_HANDLERS
from perfc.ir import DTYPES, TensorType


def _concat_from_sequence(node: OnnxNode) -> bool:
    attributes = {
        "axis": node.integer("axis", 0),
        "new_axis": node.integer("new_axis", 0),
    }
    node.emit("concat_from_sequence", attributes=attributes)
    return True


def _sequence_empty(node: OnnxNode) -> bool:
    """A sequence has no tensor type; an empty one takes no bytes."""
    made = node.emit("sequence_empty")
    made.results[0].type = TensorType(DTYPES["f32"], (0,))
    return True


def _control(node: OnnxNode) -> bool:
    regions = tuple(node.regions[name] for name in REGIONS[node.op])
    node.emit(node.op.lower(), regions=regions)
    return True


REGIONS: Mapping[str, tuple[str, ...]] = {
    "Loop": ("body",),
    "If": ("then_branch", "else_branch"),
}
"""Ops whose graphs come in as regions, and the attributes that hold these."""

HANDLERS: Mapping[str, Handler] = {
    **CONVOLUTION_HANDLERS,
    **ELEMENTWISE_HANDLERS,
    **INDEXING_HANDLERS,
    **QUANTIZATION_HANDLERS,
    **SEQUENCE_HANDLERS,
    **SHAPE_HANDLERS,
    **TENSOR_HANDLERS,
    "ConcatFromSequence": _concat_from_sequence,
    "SequenceEmpty": _sequence_empty,
    "SequenceInsert": plain("sequence_insert"),
    **dict.fromkeys(REGIONS, _control),
}
"""ONNX op type to the function that writes it."""


def lower_node(node: OnnxNode) -> None:
    """Write *node* into its graph; an op perfc does not know comes in as such.

    Raises:
        UnsupportedModelError: an attribute is of the wrong kind.

    """
    handler = HANDLERS.get(node.op)
    if handler is not None and not node.results:
        return  # nobody reads what it computes
    if handler is None or not handler(node):
        node.emit("unknown", attributes={"op": node.op})
