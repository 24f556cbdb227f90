"""Ops of onnxruntime's domain `com.microsoft`, which its optimizers write.

Shapes and operands: `docs/ContribOperators.md` of onnxruntime 1.20. Each comes
in as the ops that it stands for.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.onnx.heads import (
    defined,
    extended,
    integers,
    is_flat,
    listed,
    merged_heads,
    split_heads,
)
from perfc.frontends.onnx.node import Handler, OnnxNode
from perfc.frontends.onnx.op_map_transformer import attention_attributes, rotate
from perfc.ir import DTYPES, AttrValue, Value

_FLAT_RANK = 3


def _bias_gelu(node: OnnxNode) -> bool:
    approximate = "tanh" if node.op.endswith("FastGelu") else None
    x, bias = node.operand(0), node.operand(1)
    if x is None:
        return False
    if bias is not None:
        x = node.emit_helper("add", (x, bias), {})
    node.emit("gelu", (x,), {"approximate": approximate} if approximate else {})
    return True


def _quick_gelu(node: OnnxNode) -> bool:
    node.emit("gelu", attributes={"approximate": "sigmoid"})
    return True


def _skip_norm(node: OnnxNode) -> bool:
    """Sum of two inputs and a bias, normed; the sum is the fourth result."""
    simplified = "Simplified" in node.op
    x, skip, gamma = (node.operand(index) for index in range(3))
    if x is None or skip is None or gamma is None:
        return False
    bias = node.operand(3 if simplified else 4)
    total = (x, skip)
    if bias is not None:
        total = (node.emit_helper("add", total, {}), bias)
    summed = defined(node, 3, "add", total, {})
    beta = None if simplified else node.operand(3)
    weights = (gamma,) if beta is None else (gamma, beta)
    attributes: dict[str, AttrValue] = {
        "axis": -1,
        "epsilon": node.number("epsilon", 1e-12 if not simplified else 1e-5),
    }
    op = "rms_norm" if simplified else "layer_norm"
    defined(node, 0, op, (summed, *weights), attributes)
    return all(node.graph.find(name) is not None for name in node.results)


def _embed_layer_norm(node: OnnxNode) -> bool:
    """Rows of two or three tables, summed and normed."""
    ids, segments, words, places = (node.operand(index) for index in range(4))
    types, gamma, beta = (node.operand(index) for index in range(4, 7))
    if None in (ids, words, places, gamma, beta) or len(node.results) > 1:
        return False
    present = [v for v in (ids, words, places, gamma, beta) if v is not None]
    ids, words, places, gamma, beta = present
    total = node.emit_helper("gather", (words, ids), {"axis": 0})
    total = node.emit_helper("add", (total, _places(node, ids, places)), {})
    if segments is not None and types is not None:
        rows = node.emit_helper("gather", (types, segments), {"axis": 0})
        total = node.emit_helper("add", (total, rows), {})
    attributes: dict[str, AttrValue] = {
        "axis": -1,
        "epsilon": node.number("epsilon", 1e-12),
    }
    defined(node, 0, "layer_norm", (total, gamma, beta), attributes)
    return True


def _places(node: OnnxNode, ids: Value, table: Value) -> Value:
    """Rows of the table of positions: those given, or the first ones."""
    given = node.operand(8)
    if given is not None:
        return node.emit_helper("gather", (table, given), {"axis": 0})
    length = node.emit_helper("shape", (ids,), {"start": 1, "end": 2})
    bounds = (integers(node, 0), length, integers(node, 0), integers(node, 1))
    return node.emit_helper("slice", (table, *bounds), {})


def _fused_matmul(node: OnnxNode) -> bool:
    """Transposed where asked; the factor is a product of its own."""
    operands: list[Value] = []
    for index, flag in enumerate(("transA", "transB")):
        value, rank = node.operand(index), node.rank(index)
        if value is None or node.integer(flag.replace("trans", "transBatch"), 0):
            return False
        if node.integer(flag, 0):
            if rank is None:
                return False
            perm = (*range(rank - 2), rank - 1, rank - 2)
            value = node.emit_helper("transpose", (value,), {"perm": perm})
        operands.append(value)
    alpha = node.number("alpha", 1.0)
    if alpha == 1:
        defined(node, 0, "matmul", tuple(operands), {})
        return True
    product = node.emit_helper("matmul", tuple(operands), {})
    defined(node, 0, "mul", (product, listed(node, alpha)), {})
    return True


def _attention(node: OnnxNode) -> bool:
    """Projection to queries, keys and values, and attention."""
    x, weight, bias, mask, past, added = (node.operand(index) for index in range(6))
    shape = None if weight is None or weight.type is None else weight.type.shape
    heads = node.integer("num_heads", 0)
    if x is None or weight is None or shape is None or past is not None or not heads:
        return False
    if len(shape) != 2 or not isinstance(shape[1], int) or len(node.results) > 1:  # noqa: PLR2004
        return False
    sizes = node.integers("qkv_hidden_sizes") or (shape[1] // 3,) * 3
    operands = (x, weight) if bias is None else (x, weight, bias)
    joined = node.emit_helper("linear", operands, {"weight_is_kn": True})
    q, k, v = (split_heads(node, part, heads) for part in _cut(node, joined, sizes))
    masks = _masks(node, mask, added)
    causal = bool(node.integer("unidirectional", 0))
    attributes = attention_attributes(node, causal=causal, masked=bool(masks))
    merged_heads(node, node.emit_helper("attention", (q, k, v, *masks), attributes))
    return True


def _cut(node: OnnxNode, x: Value, sizes: tuple[int, ...]) -> tuple[Value, ...]:
    """Cut the last axis."""
    names = [node.graph.fresh_name(f"{node.results[0]}.part{i}") for i in range(3)]
    attributes: dict[str, AttrValue] = {"axis": -1, "sizes": sizes}
    made = node.graph.add("split", (x,), names, attributes, location=node.location)
    return made.results


def _masks(
    node: OnnxNode, mask: Value | None, added: Value | None
) -> tuple[Value, ...]:
    """Which keys count, for all heads, and what is added to the scores."""
    masks = () if added is None else (added,)
    if mask is None:
        return masks
    shown = node.emit_helper("cast", (mask,), {"dtype": DTYPES["bool"]})
    rank = 2 if mask.type is None else mask.type.rank
    axes = {1: (1, 2, 3), 2: (1, 2), 3: (1,)}.get(rank)
    if axes is not None:
        shown = node.emit_helper("unsqueeze", (shown,), {"axes": axes})
    return (shown, *masks)


def _multi_head_attention(node: OnnxNode) -> bool:
    """Queries, keys and values are projected already; a packed form is not known."""
    q, k, v, bias, mask, added, past_k, past_v = map(node.operand, range(8))
    heads = node.integer("num_heads", 0)
    if q is None or k is None or v is None or not heads:
        return False
    if node.rank(0) not in (None, _FLAT_RANK) or node.rank(1) not in (None, 3, 4):
        return False
    if len(node.results) > 3:  # noqa: PLR2004 - the scores
        return False
    if bias is not None:
        total = None if bias.type is None else bias.type.shape[0]
        if not isinstance(total, int):
            return False
        parts = _cut(node, bias, (total // 3,) * 3)
        q, k, v = (
            node.emit_helper("add", pair, {})
            for pair in zip((q, k, v), parts, strict=True)
        )
    q = split_heads(node, q, heads)
    if node.rank(1) in (None, _FLAT_RANK):
        k, v = split_heads(node, k, heads), split_heads(node, v, heads)
    k, v = extended(node, past_k, k, 1), extended(node, past_v, v, 2)
    masks = _masks(node, mask, added)
    causal = bool(node.integer("unidirectional", 0))
    attributes = attention_attributes(node, causal=causal, masked=bool(masks))
    merged_heads(node, node.emit_helper("attention", (q, k, v, *masks), attributes))
    return True


def _group_query_attention(node: OnnxNode) -> bool:
    """Causal attention with fewer heads of keys and values, and a cache of them."""
    q, k, v, past_k, past_v = map(node.operand, range(5))
    heads, kv_heads = node.integer("num_heads", 0), node.integer("kv_num_heads", 0)
    if q is None or not heads or not kv_heads or len(node.results) > 3:  # noqa: PLR2004
        return False
    if k is None or v is None:
        parts = _packed(node, q, heads, kv_heads)
        if parts is None:
            return False
        q, k, v = parts
    q, k, v = (
        split_heads(node, x, n) for x, n in ((q, heads), (k, kv_heads), (v, kv_heads))
    )
    if node.integer("do_rotary", 0):
        cos, sin = node.operand(7), node.operand(8)
        if cos is None or sin is None:
            return False
        q, k = (_rotated(node, x, cos, sin) for x in (q, k))
    k, v = extended(node, past_k, k, 1), extended(node, past_v, v, 2)
    attributes = attention_attributes(node, causal=True, masked=False)
    merged_heads(node, node.emit_helper("attention", (q, k, v), attributes))
    return True


def _packed(
    node: OnnxNode, x: Value, heads: int, kv_heads: int
) -> tuple[Value, ...] | None:
    width = None if x.type is None else x.type.shape[-1]
    if not isinstance(width, int):
        return None
    head = width // (heads + 2 * kv_heads)
    return _cut(node, x, (heads * head, kv_heads * head, kv_heads * head))


def _rotated(node: OnnxNode, x: Value, cos: Value, sin: Value) -> Value:
    """Rotate by the first angles: where a sequence begins depends on data."""
    length = node.emit_helper("shape", (x,), {"start": 2, "end": 3})
    bounds = (integers(node, 0), length, integers(node, 0), integers(node, 1))
    angles = [node.emit_helper("slice", (cache, *bounds), {}) for cache in (cos, sin)]
    interleaved = bool(node.integer("rotary_interleaved", 0))
    attributes: dict[str, AttrValue] = {"interleaved": True} if interleaved else {}
    return node.emit_helper("rotary", (x, *angles), attributes)


def _rotary(node: OnnxNode) -> bool:
    """Like ONNX's, but for the order of operands; one position is an offset."""
    flat = is_flat(node, 0, "num_heads")
    if node.rank(1) == 1 or (flat and not node.integer("num_heads", 0)):
        return False
    return rotate(node, cos=2, sin=3, positions=1)


CONTRIB_HANDLERS: Mapping[str, Handler] = {
    f"com.microsoft::{name}": handler
    for name, handler in {
        "Attention": _attention,
        "BiasGelu": _bias_gelu,
        "EmbedLayerNormalization": _embed_layer_norm,
        "FastGelu": _bias_gelu,
        "FusedMatMul": _fused_matmul,
        "Gelu": _bias_gelu,
        "GroupQueryAttention": _group_query_attention,
        "MultiHeadAttention": _multi_head_attention,
        "QuickGelu": _quick_gelu,
        "RotaryEmbedding": _rotary,
        "SkipLayerNormalization": _skip_norm,
        "SkipSimplifiedLayerNormalization": _skip_norm,
    }.items()
}
"""Op type with its domain to the function that writes it."""
