"""ONNX ops that compute: products, convolutions, reductions, norms."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.onnx.node import Handler, OnnxNode
from perfc.ir import AttrValue

_REDUCTIONS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
}


def _gemm(node: OnnxNode) -> bool:
    """`alpha` and `beta` scale in the epilogue, at no cost worth modelling."""
    operands = list(node.present)
    if operands and node.integer("transA", 0):
        operands[0] = node.emit_helper("transpose", (operands[0],), {"perm": (1, 0)})
    kn = not node.integer("transB", 0)
    node.emit("linear", tuple(operands), {"weight_is_kn": True} if kn else {})
    return True


def _window(node: OnnxNode) -> dict[str, AttrValue] | None:
    """Stride, padding and dilation; None for paddings that depend on the size."""
    if node.text("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    attributes: dict[str, AttrValue] = {}
    for theirs, ours in (
        ("strides", "stride"),
        ("pads", "padding"),
        ("dilations", "dilation"),
    ):
        values = node.integers(theirs)
        if values is not None:
            attributes[ours] = values
    return attributes


def _conv(node: OnnxNode) -> bool:
    attributes = _window(node)
    if attributes is None:
        return False
    node.emit("conv", attributes={**attributes, "groups": node.integer("group", 1)})
    return True


def _pool(node: OnnxNode) -> bool:
    attributes, window = _window(node), node.integers("kernel_shape")
    if attributes is None or window is None or len(node.results) != 1:
        return False
    attributes["kind"] = "max" if node.op == "MaxPool" else "average"
    attributes["window"] = window
    attributes["ceil_mode"] = bool(node.integer("ceil_mode", 0))
    node.emit("pool", attributes=attributes)
    return True


def _reduce(node: OnnxNode) -> bool:
    axes = node.integers("axes")
    if axes is None and node.operand(1) is not None:
        axes = node.constant_integers(1)
        if axes is None:
            return False
    if not axes and node.integer("noop_with_empty_axes", 0):
        node.emit("identity", node.present[:1])
        return True
    attributes: dict[str, AttrValue] = {
        "kind": _REDUCTIONS[node.op],
        "keepdims": bool(node.integer("keepdims", 1)),
    }
    if axes:
        attributes["axes"] = axes
    node.emit("reduce", node.present[:1], attributes)
    return True


def _global_average_pool(node: OnnxNode) -> bool:
    rank = node.rank(0)
    if rank is None:
        return False
    axes = tuple(range(2, rank))
    attributes: dict[str, AttrValue] = {"kind": "mean", "keepdims": True, "axes": axes}
    node.emit("reduce", attributes=attributes)
    return True


def _softmax(node: OnnxNode) -> bool:
    node.emit("softmax", attributes={"axis": node.integer("axis", -1)})
    return True


def _layer_norm(node: OnnxNode) -> bool:
    if len(node.results) != 1:
        return False
    attributes: dict[str, AttrValue] = {
        "axis": node.integer("axis", -1),
        "epsilon": node.number("epsilon", 1e-5),
    }
    node.emit("layer_norm", attributes=attributes)
    return True


def _batch_norm(node: OnnxNode) -> bool:
    if len(node.results) != 1:
        return False
    node.emit("batch_norm", attributes={"epsilon": node.number("epsilon", 1e-5)})
    return True


TENSOR_HANDLERS: Mapping[str, Handler] = {
    "Gemm": _gemm,
    "Conv": _conv,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalAveragePool": _global_average_pool,
    **dict.fromkeys(_REDUCTIONS, _reduce),
    "Softmax": _softmax,
    "LayerNormalization": _layer_norm,
    "BatchNormalization": _batch_norm,
}
