"""ONNX ops of transformers: attention, rotary embeddings, norms, activations."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.onnx.heads import (
    defined,
    extended,
    is_flat,
    merged_heads,
    split_heads,
)
from perfc.frontends.onnx.node import Handler, OnnxNode
from perfc.ir import AttrValue, Value

_QK_RESULT = 3
_CAPPED = ("matmul(q, k)", "mul(s)", "div(s)", "tanh(s)", "mul(s)")
"""What a source does that caps its scores: no call of PyTorch does it."""


def attention_attributes(
    node: OnnxNode, *, causal: bool, masked: bool
) -> dict[str, AttrValue]:
    """Return the attributes that all attention ops of ONNX share."""
    attributes: dict[str, AttrValue] = {}
    if causal:
        attributes["causal"] = True
    if scale := node.number("scale", 0.0):
        attributes["scale"] = scale
    if node.number("softcap", 0.0):
        mask = ("add(s, m)",) if causal or masked else ()
        attributes["spelled_out"] = (*_CAPPED, *mask, "softmax(s)", "matmul(s, v)")
    return attributes


def _attention(node: OnnxNode) -> bool:
    """Three axes with numbers of heads as attributes, or four."""
    operands = [node.operand(index) for index in range(6)]
    q, k, v, mask, past_k, past_v = operands
    if q is None or k is None or v is None or len(node.results) > _QK_RESULT:
        return False
    flat = is_flat(node, 0, "q_num_heads")
    if flat:
        q = split_heads(node, q, node.integer("q_num_heads", 1))
        k = split_heads(node, k, node.integer("kv_num_heads", 1))
        v = split_heads(node, v, node.integer("kv_num_heads", 1))
    k, v = extended(node, past_k, k, 1), extended(node, past_v, v, 2)
    masks = () if mask is None else (mask,)
    causal = bool(node.integer("is_causal", 0))
    attributes = attention_attributes(node, causal=causal, masked=bool(masks))
    if flat:
        made = node.emit_helper("attention", (q, k, v, *masks), attributes)
        merged_heads(node, made)
    else:
        defined(node, 0, "attention", (q, k, v, *masks), attributes)
    return True


def _rotary(node: OnnxNode) -> bool:
    return rotate(node, cos=1, sin=2, positions=3)


def rotate(node: OnnxNode, *, cos: int, sin: int, positions: int) -> bool:
    """Write a rotary embedding whose operands have these indices."""
    x, cosines, sines = node.operand(0), node.operand(cos), node.operand(sin)
    if x is None or cosines is None or sines is None:
        return False
    angles = [_angles(node, cache, positions) for cache in (cosines, sines)]
    attributes: dict[str, AttrValue] = {}
    if node.integer("interleaved", 0):
        attributes["interleaved"] = True
    if width := node.integer("rotary_embedding_dim", 0):
        attributes["width"] = width
    if is_flat(node, 0, "num_heads"):
        heads = split_heads(node, x, node.integer("num_heads", 1))
        made = node.emit_helper("rotary", (heads, *angles), attributes)
        merged_heads(node, made)
    else:
        defined(node, 0, "rotary", (x, *angles), attributes)
    return True


def _angles(node: OnnxNode, cache: Value, positions: int) -> Value:
    """Look the positions up, and make room for the heads."""
    where = node.operand(positions)
    if where is not None:
        cache = node.emit_helper("gather", (cache, where), {"axis": 0})
    return node.emit_helper("unsqueeze", (cache,), {"axes": (1,)})


def _layer_norm(node: OnnxNode) -> bool:
    """Mean and inverse deviation are further results."""
    attributes: dict[str, AttrValue] = {
        "axis": node.integer("axis", -1),
        "epsilon": node.number("epsilon", 1e-5),
    }
    node.emit("layer_norm", attributes=attributes)
    return True


def _rms_norm(node: OnnxNode) -> bool:
    if len(node.results) != 1:
        return False
    attributes: dict[str, AttrValue] = {
        "axis": node.integer("axis", -1),
        "epsilon": node.number("epsilon", 1e-5),
    }
    node.emit("rms_norm", node.present[:2], attributes)
    return True


def _group_norm(node: OnnxNode) -> bool:
    """Scale and bias are per group before opset 21, per channel after."""
    attributes: dict[str, AttrValue] = {
        "groups": node.integer("num_groups", 1),
        "epsilon": node.number("epsilon", 1e-5),
    }
    node.emit("group_norm", attributes=attributes)
    return True


def _instance_norm(node: OnnxNode) -> bool:
    """A group norm with a group per channel; the scale may tell how many there are."""
    channels = node.length(1)
    attributes: dict[str, AttrValue] = {"epsilon": node.number("epsilon", 1e-5)}
    if channels is not None:
        attributes["groups"] = channels
    node.emit("group_norm", attributes=attributes)
    return True


def _gelu(node: OnnxNode) -> bool:
    tanh = node.text("approximate", "none") == "tanh"
    node.emit("gelu", attributes={"approximate": "tanh"} if tanh else {})
    return True


def _plain(op: str) -> Handler:
    def handler(node: OnnxNode) -> bool:
        node.emit(op, node.present[:1])
        return True

    return handler


TRANSFORMER_HANDLERS: Mapping[str, Handler] = {
    "Attention": _attention,
    "RotaryEmbedding": _rotary,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "SimplifiedLayerNormalization": _rms_norm,  # onnxruntime's name, same domain
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "Gelu": _gelu,
    "HardSwish": _plain("hardswish"),
    "Mish": _plain("mish"),
}
"""ONNX op type to the function that writes it."""
