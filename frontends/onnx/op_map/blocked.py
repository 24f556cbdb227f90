"""Ops on blocked images: onnxruntime's domain `com.microsoft.nchwc`.

Its optimizer for CPUs stores channels in blocks, filled up with zeros; axes keep
the order [n, c, h, w]. The weights of the file have the padded numbers of channels
already, so that a convolution is the usual one. To reorder is to copy: a pad by
nothing, as how many channels a block has depends on the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.frontends.onnx.heads import integers
from perfc.frontends.onnx.node import Handler, OnnxNode
from perfc.frontends.onnx.op_map.convolution import CONVOLUTION_HANDLERS
from perfc.frontends.onnx.op_map.fused import FUSED_HANDLERS
from perfc.ir import AttrValue, Value

_POOLS = ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")
_IMAGE_RANK = 4
_TO_FRONT, _TO_BACK = (0, 3, 1, 2), (0, 2, 3, 1)


def _pool(name: str) -> Handler:
    def handler(node: OnnxNode) -> bool:
        return CONVOLUTION_HANDLERS[name](attrs.evolve(node, op=name))

    return handler


def _reorder_input(node: OnnxNode) -> bool:
    x = node.operand(0)
    if x is None:
        return False
    if node.integer("channels_last", 0):
        x = node.emit_helper("transpose", (x,), {"perm": _TO_FRONT})
    return _copied(node, x)


def _reorder_output(node: OnnxNode) -> bool:
    """Leave out the channels that fill the last block."""
    x, channels = node.operand(0), node.integer("channels", 0)
    if x is None or channels < 1:
        return False
    bounds = (integers(node, n) for n in (0, channels, 1, 1))
    x = node.emit_helper("slice", (x, *bounds))
    if node.integer("channels_last", 0):
        x = node.emit_helper("transpose", (x,), {"perm": _TO_BACK})
    return _copied(node, x)


def _copied(node: OnnxNode, x: Value) -> bool:
    nothing = integers(node, *(0,) * (2 * _IMAGE_RANK))
    node.emit("pad", (x, nothing), {"mode": "constant"})
    return True


def _upsample(node: OnnxNode) -> bool:
    scales = node.integers("scales")
    if scales is None:
        return False
    attributes: dict[str, AttrValue] = {
        "mode": node.text("mode", "nearest"),
        "scales": tuple(map(float, scales)),
    }
    node.emit("resize", attributes=attributes)
    return True


BLOCKED_HANDLERS: Mapping[str, Handler] = {
    f"com.microsoft.nchwc::{name}": handler
    for name, handler in {
        "Conv": FUSED_HANDLERS["com.microsoft::FusedConv"],
        "ReorderInput": _reorder_input,
        "ReorderOutput": _reorder_output,
        "Upsample": _upsample,
        **{name: _pool(name) for name in _POOLS},
    }.items()
}
"""Op type with its domain to the function that writes it."""
