"""ONNX ops that select, scatter, repeat or shuffle elements."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.onnx.node import Handler, OnnxNode, plain
from perfc.frontends.onnx.reader import convert_dtype
from perfc.ir import DTYPES, AttrValue, DType


def _scatter(node: OnnxNode) -> bool:
    nd = node.op == "ScatterND"
    attributes: dict[str, AttrValue] = {}
    if not nd:
        attributes["axis"] = node.integer("axis", 0)
    reduction = node.text("reduction", "none")
    if reduction != "none":
        attributes["reduction"] = reduction
    op = "scatter_nd" if nd else "scatter_elements"
    node.emit(op, attributes=attributes)
    return True


def _topk(node: OnnxNode) -> bool:
    if len(node.present) != 2:  # opset 10 and later
        return False
    node.emit("topk", attributes={"axis": node.integer("axis", -1)})
    return True


def _pad(node: OnnxNode) -> bool:
    """Only a constant to fill with matters, and only to shape arithmetic."""
    data, pads, axes = node.operand(0), node.operand(1), node.operand(3)
    if data is None or pads is None:  # before opset 11 pads were an attribute
        return False
    attributes: dict[str, AttrValue] = {"mode": node.text("mode", "constant")}
    value = 0 if node.operand(2) is None else node.constant_integer(2)
    if value is not None and attributes["mode"] == "constant":
        attributes["value"] = value
    node.emit("pad", (data, pads, axes) if axes else (data, pads), attributes)
    return True


def optional_dtype(node: OnnxNode, name: str) -> DType | None:
    """Return the element type that an attribute names, or None if it is absent."""
    code = node.integer(name, 0)
    return convert_dtype(code, f"{node.op} {node.results[0]!r}") if code else None


def _eye_like(node: OnnxNode) -> bool:
    dtype = optional_dtype(node, "dtype")
    node.emit("eye_like", attributes={} if dtype is None else {"dtype": dtype})
    return True


_RANDOM = {
    "RandomNormal": "normal",
    "RandomNormalLike": "normal",
    "RandomUniform": "uniform",
    "RandomUniformLike": "uniform",
    "Bernoulli": "bernoulli",
}


def _random(node: OnnxNode) -> bool:
    """Emit random numbers of `dtype`, else of the operand's type, else fp32."""
    x = node.operand(0)
    dtype = optional_dtype(node, "dtype")
    if dtype is None and x is not None:
        dtype = x.type.dtype if x.type is not None else None
    attributes: dict[str, AttrValue] = {
        "kind": _RANDOM[node.op],
        "dtype": dtype or DTYPES["f32"],
    }
    if x is None:
        attributes["shape"] = node.integers("shape") or ()
    node.emit("random", attributes=attributes)
    return True


def _multinomial(node: OnnxNode) -> bool:
    attributes: dict[str, AttrValue] = {
        "dtype": optional_dtype(node, "dtype") or DTYPES["i32"],
        "samples": node.integer("sample_size", 1),
    }
    node.emit("multinomial", attributes=attributes)
    return True


_INTERPOLATIONS = {
    "nearest": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "cubic": "cubic",
    "bicubic": "cubic",
}


def _interpolation(node: OnnxNode, default: str) -> str:
    mode = node.text("mode", default)
    return _INTERPOLATIONS.get(mode, mode)


def _resize(node: OnnxNode) -> bool:
    """Emit a resize by scales (operand 2) or to sizes (operand 3)."""
    attributes: dict[str, AttrValue] = {"mode": _interpolation(node, "nearest")}
    axes = node.integers("axes")
    if axes is not None:
        attributes["axes"] = axes
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        attributes["keep_aspect_ratio"] = policy
    x, sizes = node.required(0), node.operand(3)
    if sizes is not None:
        node.emit("resize", (x, sizes), attributes)
        return True
    scales = node.constant_numbers(2)
    if scales is not None:
        attributes["scales"] = scales
    node.emit("resize", (x,), attributes)
    return True


def _grid_sample(node: OnnxNode) -> bool:
    node.emit("grid_sample", attributes={"mode": _interpolation(node, "linear")})
    return True


def _pixel_shuffle(node: OnnxNode) -> bool:
    attributes: dict[str, AttrValue] = {
        "block": node.integer("blocksize", 0),
        "to_space": node.op == "DepthToSpace",
    }
    node.emit("pixel_shuffle", attributes=attributes)
    return True


INDEXING_HANDLERS: Mapping[str, Handler] = {
    "Gather": plain("gather", axis=0),
    "GatherElements": plain("gather_elements", axis=0),
    "GatherND": plain("gather_nd", batch_dims=0),
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "TensorScatter": plain("tensor_scatter", axis=-2),
    "ReverseSequence": plain("reverse_sequence"),
    "TopK": _topk,
    "NonZero": plain("nonzero"),
    "Compress": plain("compress", axis=None),
    "Unique": plain("unique", axis=None),
    "NonMaxSuppression": plain("non_max_suppression"),
    "OneHot": plain("one_hot", axis=-1),
    "Tile": plain("tile"),
    "Pad": _pad,
    "CenterCropPad": plain("center_crop_pad", axes=None),
    "DepthToSpace": _pixel_shuffle,
    "SpaceToDepth": _pixel_shuffle,
    "Trilu": plain("trilu", upper=True),
    "EyeLike": _eye_like,
    **dict.fromkeys(_RANDOM, _random),
    "Multinomial": _multinomial,
    "Resize": _resize,
    "GridSample": _grid_sample,
    "AffineGrid": plain("affine_grid"),
}
