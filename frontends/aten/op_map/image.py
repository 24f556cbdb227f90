"""ATen ops that pad images or change their size."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler
from perfc.frontends.aten.op_map.normalization import emit_wanted
from perfc.ir import AttrValue

_MODES = {"nearest": "nearest", "linear": "linear", "cubic": "cubic"}
_RESIZES = {
    "upsample_nearest1d": "nearest",
    "upsample_nearest2d": "nearest",
    "upsample_nearest3d": "nearest",
    "_upsample_nearest_exact1d": "nearest",
    "_upsample_nearest_exact2d": "nearest",
    "_upsample_nearest_exact3d": "nearest",
    "upsample_linear1d": "linear",
    "upsample_bilinear2d": "linear",
    "upsample_trilinear3d": "linear",
    "_upsample_bilinear2d_aa": "linear",
    "upsample_bicubic2d": "cubic",
    "_upsample_bicubic2d_aa": "cubic",
}
_AXES = (1, 2, 3)
_INTERPOLATIONS = ("linear", "nearest", "cubic")


def _resize(mode: str) -> Handler:
    def handler(node: AtenNode) -> None:
        operands = (node.operands[0], node.listed(node.result().shape))
        node.emit("resize", operands, {"mode": mode})

    return handler


def _resize_backward(mode: str) -> Handler:
    def handler(node: AtenNode) -> None:
        attributes: dict[str, AttrValue] = {"mode": mode, "shape": node.result().shape}
        node.emit("resize_backward", (node.tensor("grad_output"),), attributes)

    return handler


def _interpolation(node: AtenNode) -> dict[str, AttrValue]:
    code = node.integer("interpolation_mode", 0)
    known = 0 <= code < len(_INTERPOLATIONS)
    return {"mode": _INTERPOLATIONS[code] if known else "linear"}


def _grid_sample(node: AtenNode) -> None:
    operands = (node.tensor("input"), node.tensor("grid"))
    node.emit("grid_sample", operands, _interpolation(node))


def _grid_sample_backward(node: AtenNode) -> None:
    operands = [node.tensor(n) for n in ("grad_output", "input", "grid")]
    names = ("x", "grid")
    emit_wanted(node, "grid_sample_backward", operands, _interpolation(node), names)


def _affine_grid(node: AtenNode) -> None:
    size = node.listed(node.dims("size"))
    node.emit("affine_grid", (node.tensor("theta"), size))


def _pad(mode: str) -> Handler:
    """ATen lists the last axis first, in front and behind."""

    def handler(node: AtenNode) -> None:
        x = node.tensor("self")
        pads = node.dims("pad" if node.is_given("pad") else "padding")
        axes = [x.rank - 1 - i for i in range(len(pads) // 2)]
        operands = (x, node.listed((*pads[::2], *pads[1::2])), node.listed(axes))
        node.emit("pad", operands, {"mode": node.text("mode", mode)})

    return handler


def _pad_backward(mode: str) -> Handler:
    def handler(node: AtenNode) -> None:
        attributes: dict[str, AttrValue] = {"mode": mode, "shape": node.result().shape}
        node.emit("pad_backward", (node.tensor("grad_output"),), attributes)

    return handler


IMAGE_HANDLERS: Mapping[str, Handler] = {
    **{f"aten.{name}": _resize(mode) for name, mode in _RESIZES.items()},
    **{f"aten.{name}_backward": _resize_backward(m) for name, m in _RESIZES.items()},
    "aten.grid_sampler_2d": _grid_sample,
    "aten.grid_sampler_3d": _grid_sample,
    "aten.grid_sampler": _grid_sample,
    "aten.grid_sampler_2d_backward": _grid_sample_backward,
    "aten.grid_sampler_3d_backward": _grid_sample_backward,
    "aten.affine_grid_generator": _affine_grid,
    "aten.constant_pad_nd": _pad("constant"),
    "aten.pad": _pad("constant"),
    **{f"aten.reflection_pad{n}d": _pad("reflect") for n in (1, 2, 3)},
    **{f"aten.replication_pad{n}d": _pad("edge") for n in (1, 2, 3)},
    **{f"aten.reflection_pad{n}d_backward": _pad_backward("reflect") for n in _AXES},
    **{f"aten.replication_pad{n}d_backward": _pad_backward("edge") for n in _AXES},
}
"""ATen ops to the functions that write them."""
