"""Ops of onnxruntime's domain `com.microsoft`, which its optimizers write.

Shapes and operands: `docs/ContribOperators.md` of onnxruntime 1.20. Each comes
in as the ops that it stands for.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.onnx.heads import (
    cut,
    cut_to,
    defined,
    extended,
    heads_first,
    integers,
    is_flat,
    merged_heads,
    split_heads,
)
from perfc.frontends.onnx.node import Handler, OnnxNode
from perfc.frontends.onnx.op_map.transformer import attention_attributes, rotate
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
    """Sum of two inputs and a bias, normed; the sum is the fourth result.

    Moments of the rows, for training, are results of a layer norm only.
    """
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
    if simplified:
        defined(node, 0, "rms_norm", (summed, *weights), attributes)
    else:
        node.emit(
            "layer_norm", (summed, *weights), attributes, results=node.results[:3]
        )
    return True


def _embed_layer_norm(node: OnnxNode) -> bool:
    """Rows of two or three tables, summed and normed; quantised ones with scales."""
    quantised = node.op.endswith("QEmbedLayerNormalization")
    ids, segments, words, places = (node.operand(index) for index in range(4))
    types, gamma, beta, mask = (node.operand(index) for index in range(4, 8))
    if None in (ids, words, places, gamma, beta):
        return False
    present = [v for v in (ids, words, places, gamma, beta) if v is not None]
    ids, words, places, gamma, beta = present

    def real(value: Value, index: int) -> Value:
        """Undo quantisation: scales of the tables are operands 8 to 12."""
        scale, zero_point = node.operand(8 + index), node.operand(13 + index)
        if not quantised or scale is None:
            return value
        pair = (scale,) if zero_point is None else (scale, zero_point)
        return node.emit_helper("dequantize", (value, *pair), {})

    total = real(node.emit_helper("gather", (words, ids), {"axis": 0}), 0)
    given = None if quantised else node.operand(8)
    rows = real(_places(node, ids, places, given), 1)
    if segments is not None and types is not None:
        total = node.emit_helper("add", (total, rows), {})
        rows = node.emit_helper("gather", (types, segments), {"axis": 0})
        rows = real(rows, 2)
    total = defined(node, 2, "add", (total, rows), {})
    attributes: dict[str, AttrValue] = {
        "axis": -1,
        "epsilon": node.number("epsilon", 1e-12),
    }
    operands = (total, real(gamma, 3), real(beta, 4))
    defined(node, 0, "layer_norm", operands, attributes)
    _lengths(node, ids, mask)
    return True


def _lengths(node: OnnxNode, ids: Value, mask: Value | None) -> None:
    """Write result 1, the length of each sequence: 0 where nothing is masked."""
    if len(node.results) < 2:  # nobody wants it
        return
    if mask is not None:
        attributes: dict[str, AttrValue] = {"kind": "sum", "axes": (1,)}
        defined(node, 1, "reduce", (mask,), {**attributes, "keepdims": False})
        return
    batch = node.emit_helper("shape", (ids,), {"start": 0, "end": 1})
    defined(node, 1, "fill", (batch,), {"dtype": DTYPES["i32"], "value": 0})


def _places(node: OnnxNode, ids: Value, table: Value, given: Value | None) -> Value:
    """Rows of the table of positions: those given, or the first ones."""
    if given is not None:
        return node.emit_helper("gather", (table, given), {"axis": 0})
    length = node.emit_helper("shape", (ids,), {"start": 1, "end": 2})
    bounds = (integers(node, 0), length, integers(node, 0), integers(node, 1))
    return node.emit_helper("slice", (table, *bounds), {})


def _attention(node: OnnxNode) -> bool:
    """Projection to queries, keys and values, and attention."""
    x, weight, bias, mask, past, added = (node.operand(index) for index in range(6))
    if x is None or weight is None or not _attends(node):
        return False
    operands = (x, weight) if bias is None else (x, weight, bias)
    joined = node.emit_helper("linear", operands, {"weight_is_kn": True})
    return _attend(node, joined, _masks(node, mask, added), past)


def _quantised_attention(node: OnnxNode) -> bool:
    """The projection is of integers: scales and zero points beside bias and weight."""
    x, weight, bias, *scales = (node.operand(index) for index in range(5))
    if x is None or weight is None or bias is None or not _attends(node):
        return False
    rest = (bias, *scales, node.operand(6), node.operand(7))
    operands = (x, weight, *(value for value in rest if value is not None))
    dtype = DTYPES["f32"] if bias.type is None else bias.type.dtype
    joined = node.emit_helper("matmul", operands, {"dtype": dtype})
    masks = _masks(node, node.operand(5), None)
    return _attend(node, joined, masks, node.operand(8))


def _attends(node: OnnxNode) -> bool:
    """Whether heads are counted, not rotated, and no buffer is longer than its use."""
    known = node.integer("num_heads", 0) and not node.integer("do_rotary", 0)
    return bool(known) and not node.integer("past_present_share_buffer", 0)


def _attend(
    node: OnnxNode, joined: Value, masks: tuple[Value, ...], past: Value | None
) -> bool:
    """Attend with what queries, keys and values in one tensor say, and the cache."""
    heads, sizes = node.integer("num_heads", 0), node.integers("qkv_hidden_sizes")
    parts = cut(node, joined) if sizes is None else cut_to(node, joined, sizes)
    q, k, v = (split_heads(node, part, heads) for part in parts)
    if past is not None:
        before = cut(node, past, axis=0, parts=2)
        k, v = (
            node.emit_helper("concat", (_unstacked(node, old), new), {"axis": 2})
            for old, new in zip(before, (k, v), strict=True)
        )
    if len(node.results) > 1:
        both = [node.emit_helper("unsqueeze", (x,), {"axes": (0,)}) for x in (k, v)]
        defined(node, 1, "concat", tuple(both), {"axis": 0})
    causal = bool(node.integer("unidirectional", 0))
    attributes = attention_attributes(node, causal=causal, masked=bool(masks))
    merged_heads(node, node.emit_helper("attention", (q, k, v, *masks), attributes))
    return True


def _unstacked(node: OnnxNode, x: Value, axis: int = 0) -> Value:
    return node.emit_helper("squeeze", (x,), {"axes": (axis,)})


def _masks(
    node: OnnxNode, mask: Value | None, added: Value | None
) -> tuple[Value, ...]:
    """Return masks: of the keys that count, for all heads, and added to the scores."""
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
    """Queries, keys and values are projected already, maybe packed into one tensor."""
    bias, mask, added, past_k, past_v = map(node.operand, range(3, 8))
    if len(node.results) > 3 or not node.integer("num_heads", 0):  # scores
        return False
    parts = _queries_keys_values(node, bias)
    if parts is None:
        return False
    q, k, v = parts
    k, v = extended(node, past_k, k, 1), extended(node, past_v, v, 2)
    masks = _masks(node, mask, added)
    causal = bool(node.integer("unidirectional", 0))
    attributes = attention_attributes(node, causal=causal, masked=bool(masks))
    merged_heads(node, node.emit_helper("attention", (q, k, v, *masks), attributes))
    return True


def _queries_keys_values(
    node: OnnxNode, bias: Value | None
) -> tuple[Value, Value, Value] | None:
    """Return [batch, heads, length, width] three times.

    Keys and values of another sequence come in this form, or, packed, as [batch,
    length, heads, 2, width]; all three packed as [batch, length, heads, 3, width].
    """
    q, k, v = map(node.operand, range(3))
    heads = node.integer("num_heads", 0)
    if q is None or (bias is not None and (k is None or v is None)):
        return None
    if k is None:
        q, k, v = _unpacked(node, q, 3)
        return q, k, v
    if bias is not None and v is not None:
        q, k, v = (
            node.emit_helper("add", pair, {})
            for pair in zip((q, k, v), cut(node, bias), strict=True)
        )
    q = split_heads(node, q, heads)
    if v is None:
        k, v = _unpacked(node, k, 2)
    elif node.rank(1) in (None, _FLAT_RANK):
        k, v = split_heads(node, k, heads), split_heads(node, v, heads)
    return q, k, v


def _unpacked(node: OnnxNode, x: Value, parts: int) -> tuple[Value, ...]:
    """[batch, length, heads, parts, width] to [batch, heads, length, width] each."""
    pieces = cut(node, x, axis=3, parts=parts)
    return tuple(heads_first(node, _unstacked(node, piece, 3)) for piece in pieces)


def _group_query_attention(node: OnnxNode) -> bool:
    """Causal attention with fewer heads of keys and values, and a cache of them."""
    q, k, v, past_k, past_v = map(node.operand, range(5))
    heads, kv_heads = node.integer("num_heads", 0), node.integer("kv_num_heads", 0)
    if q is None or not heads or not kv_heads or len(node.results) > 3:
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
    return cut_to(node, x, (heads * head, kv_heads * head, kv_heads * head))


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
        "Gelu": _bias_gelu,
        "GroupQueryAttention": _group_query_attention,
        "MultiHeadAttention": _multi_head_attention,
        "QAttention": _quantised_attention,
        "QEmbedLayerNormalization": _embed_layer_norm,
        "QuickGelu": _quick_gelu,
        "RotaryEmbedding": _rotary,
        "SkipLayerNormalization": _skip_norm,
        "SkipSimplifiedLayerNormalization": _skip_norm,
    }.items()
}
"""Op type with its domain to the function that writes it."""
