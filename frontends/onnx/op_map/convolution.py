"""ONNX ops that move a window, or regions, over images."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.onnx.node import Handler, OnnxNode, plain
from perfc.ir import AttrValue

_AUTO_PADS = {"SAME_UPPER": "same_upper", "SAME_LOWER": "same_lower"}


def window_attributes(node: OnnxNode) -> dict[str, AttrValue]:
    """Return stride, padding and dilation, as far as the file gives them."""
    attributes: dict[str, AttrValue] = {}
    for theirs, ours in (
        ("strides", "stride"),
        ("pads", "padding"),
        ("dilations", "dilation"),
    ):
        values = node.integers(theirs)
        if values is not None:
            attributes[ours] = values
    way = node.text("auto_pad", "NOTSET")
    if way in _AUTO_PADS:
        attributes["auto_pad"] = _AUTO_PADS[way]
    if way != "NOTSET":
        attributes.pop("padding", None)  # what `pads` says does not count then
    return attributes


def _conv(node: OnnxNode) -> bool:
    attributes = window_attributes(node)
    node.emit("conv", attributes={**attributes, "groups": node.integer("group", 1)})
    return True


def _conv_transpose(node: OnnxNode) -> bool:
    attributes = window_attributes(node)
    attributes["groups"] = node.integer("group", 1)
    for name in ("output_padding", "output_shape"):
        values = node.integers(name)
        if values is not None:
            attributes[name] = values
    node.emit("conv_transpose", attributes=attributes)
    return True


def _deform_conv(node: OnnxNode) -> bool:
    attributes = window_attributes(node)
    node.emit(
        "deform_conv", attributes={**attributes, "groups": node.integer("group", 1)}
    )
    return True


_POOLS = {"MaxPool": "max", "AveragePool": "average", "LpPool": "lp"}


def _pool(node: OnnxNode) -> bool:
    window = node.integers("kernel_shape")
    if window is None:
        return False
    attributes = window_attributes(node)
    attributes["kind"] = _POOLS[node.op]
    attributes["window"] = window
    attributes["ceil_mode"] = bool(node.integer("ceil_mode", 0))
    node.emit("pool", attributes=attributes)
    return True


def _max_unpool(node: OnnxNode) -> bool:
    window = node.integers("kernel_shape")
    if window is None:
        return False
    node.emit("max_unpool", attributes={**window_attributes(node), "window": window})
    return True


_GLOBAL_POOLS = {
    "GlobalAveragePool": "mean",
    "GlobalMaxPool": "max",
    "GlobalLpPool": "l2",
}


def _global_pool(node: OnnxNode) -> bool:
    """Reduce every axis but the first two."""
    attributes: dict[str, AttrValue] = {
        "kind": _GLOBAL_POOLS[node.op],
        "keepdims": True,
        "first_axis": 2,
    }
    node.emit("reduce", attributes=attributes)
    return True


def _max_roi_pool(node: OnnxNode) -> bool:
    size = node.integers("pooled_shape")
    if size is None:
        return False
    node.emit("roi_pool", attributes={"kind": "max", "size": size})
    return True


def _roi_align(node: OnnxNode) -> bool:
    size = (node.integer("output_height", 1), node.integer("output_width", 1))
    node.emit("roi_pool", attributes={"kind": "align", "size": size})
    return True


def _col2im(node: OnnxNode) -> bool:
    node.emit("col2im", attributes=window_attributes(node))
    return True


CONVOLUTION_HANDLERS: Mapping[str, Handler] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DeformConv": _deform_conv,
    "Col2Im": _col2im,
    "CausalConvWithState": plain("causal_conv"),
    **dict.fromkeys(_POOLS, _pool),
    **dict.fromkeys(_GLOBAL_POOLS, _global_pool),
    "MaxUnpool": _max_unpool,
    "MaxRoiPool": _max_roi_pool,
    "RoiAlign": _roi_align,
}
