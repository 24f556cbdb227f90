"""ONNX op types to perfc ops."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.onnx.node import Handler, OnnxNode
from perfc.frontends.onnx.op_map.blocked import BLOCKED_HANDLERS
from perfc.frontends.onnx.op_map.contrib import CONTRIB_HANDLERS
from perfc.frontends.onnx.op_map.control import CONTROL_HANDLERS
from perfc.frontends.onnx.op_map.convolution import CONVOLUTION_HANDLERS
from perfc.frontends.onnx.op_map.elementwise import ELEMENTWISE_HANDLERS
from perfc.frontends.onnx.op_map.embedding import EMBEDDING_HANDLERS
from perfc.frontends.onnx.op_map.fused import FUSED_HANDLERS
from perfc.frontends.onnx.op_map.fused_quantization import FUSED_QUANTIZATION_HANDLERS
from perfc.frontends.onnx.op_map.indexing import INDEXING_HANDLERS
from perfc.frontends.onnx.op_map.quantization import QUANTIZATION_HANDLERS
from perfc.frontends.onnx.op_map.sequences import SEQUENCE_HANDLERS
from perfc.frontends.onnx.op_map.shapes import SHAPE_HANDLERS
from perfc.frontends.onnx.op_map.tensors import TENSOR_HANDLERS
from perfc.frontends.onnx.op_map.transformer import TRANSFORMER_HANDLERS

HANDLERS: Mapping[str, Handler] = {
    **CONVOLUTION_HANDLERS,
    **ELEMENTWISE_HANDLERS,
    **INDEXING_HANDLERS,
    **QUANTIZATION_HANDLERS,
    **SEQUENCE_HANDLERS,
    **SHAPE_HANDLERS,
    **TENSOR_HANDLERS,
    **CONTROL_HANDLERS,
    **EMBEDDING_HANDLERS,
    **TRANSFORMER_HANDLERS,
    **CONTRIB_HANDLERS,
    **FUSED_HANDLERS,
    **FUSED_QUANTIZATION_HANDLERS,
    **BLOCKED_HANDLERS,
}
"""ONNX op type to the function that writes it."""


def is_known(op: str) -> bool:
    """Whether there is a handler for *op*."""
    return op in HANDLERS


def lower_node(node: OnnxNode) -> bool:
    """Write *node* into its graph; False if perfc has no op for it.

    Raises:
        UnsupportedModelError: an attribute is of the wrong kind.

    """
    if not is_known(node.op):
        return False
    if not node.results:
        return True  # nobody reads what it computes
    return HANDLERS[node.op](node)
