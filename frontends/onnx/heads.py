"""What handlers of attention share: splitting heads, joining them, caches."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.onnx.node import OnnxNode
from perfc.ir import DTYPES, AttrValue, Value

_FLAT_RANK = 3
_HEADS_FIRST = (0, 2, 1, 3)


def defined(
    node: OnnxNode,
    index: int,
    op: str,
    operands: tuple[Value, ...],
    attributes: Mapping[str, AttrValue],
) -> Value:
    """Add the node that defines result *index*; nobody may want it."""
    wanted = index < len(node.results)
    if not wanted:
        return node.emit_helper(op, operands, attributes)
    made = node.graph.add(
        op, operands, [node.results[index]], attributes, location=node.location
    )
    return made.results[0]


def integers(node: OnnxNode, *values: int) -> Value:
    """Add a constant list of integers."""
    attributes: dict[str, AttrValue] = {
        "dtype": DTYPES["i64"],
        "shape": (len(values),),
        "elements": values,
    }
    return node.emit_helper("constant", (), attributes)


def listed(node: OnnxNode, value: float) -> Value:
    """Add a constant number, of the type of operand 0 if that is declared."""
    x = node.operand(0)
    dtype = DTYPES["f32"] if x is None or x.type is None else x.type.dtype
    attributes: dict[str, AttrValue] = {"dtype": dtype, "shape": (), "value": value}
    return node.emit_helper("constant", (), attributes)


def cut(
    node: OnnxNode, x: Value, *, axis: int = -1, parts: int = 3
) -> tuple[Value, ...]:
    """Cut an axis into equal parts."""
    return _split(node, x, parts, {"axis": axis, "parts": parts})


def cut_to(node: OnnxNode, x: Value, sizes: tuple[int, ...]) -> tuple[Value, ...]:
    """Cut the last axis into parts of these sizes."""
    return _split(node, x, len(sizes), {"axis": -1, "sizes": sizes})


def _split(
    node: OnnxNode, x: Value, count: int, attributes: Mapping[str, AttrValue]
) -> tuple[Value, ...]:
    stem = node.results[0]
    names = [node.graph.fresh_name(f"{stem}.part{i}") for i in range(count)]
    made = node.graph.add("split", (x,), names, attributes, location=node.location)
    return made.results


def is_flat(node: OnnxNode, index: int, heads: str) -> bool:
    """Whether an operand is [batch, length, heads * width]."""
    rank = node.rank(index)
    if rank is None:
        return bool(node.integer(heads, 0))
    return rank == _FLAT_RANK


def split_heads(node: OnnxNode, x: Value, heads: int) -> Value:
    """[batch, length, heads * width] to [batch, heads, length, width]."""
    shape = integers(node, 0, 0, heads, -1)
    return heads_first(node, node.emit_helper("reshape", (x, shape), {}))


def heads_first(node: OnnxNode, x: Value) -> Value:
    """[batch, length, heads, width] to [batch, heads, length, width]."""
    return node.emit_helper("transpose", (x,), {"perm": _HEADS_FIRST})


def merged_heads(node: OnnxNode, x: Value) -> Value:
    """[batch, heads, length, width] to result 0, [batch, length, heads * width]."""
    turned = node.emit_helper("transpose", (x,), {"perm": _HEADS_FIRST})
    return defined(node, 0, "reshape", (turned, integers(node, 0, 0, -1)), {})


def extended(node: OnnxNode, past: Value | None, x: Value, result: int) -> Value:
    """Put *x* behind the cache; the two together are result *result*."""
    if past is not None:
        return defined(node, result, "concat", (past, x), {"axis": 2})
    if result < len(node.results):
        defined(node, result, "identity", (x,), {})
    return x
