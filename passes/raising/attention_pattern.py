"""What exported or spelled-out attention looks like, and how it is recognised.

From its last matmul backwards: values; the softmax, behind a guard against rows
that are all hidden; masks, added or chosen by `where`; a scale, before the first
matmul or after it; that matmul, of queries and transposed keys.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

from perfc.ir import AttrValue, Node, TensorType, Value
from perfc.ir.dims import Dim
from perfc.passes.raising import pattern

_CALL = "aten.scaled_dot_product_attention"
_HIDDEN = -1e4
"""Scores at or below this have no weight after a softmax."""

_RANKS = (3, 4)
_SWAPPED = {3: (0, 2, 1), 4: (0, 1, 3, 2)}


@attrs.frozen(eq=False)
class Attention:
    """Attention found in a graph.

    Attributes:
        queries: [batch, heads, q_len, head_dim], or without heads.
        keys: [batch, kv_heads, kv_len, head_dim], or transposed: see `turned`.
        values: [batch, kv_heads, kv_len, head_dim].
        masks: What is added to the scores, or which of them count.
        turned: Whether `keys` are transposed already.
        attributes: Of the op.
        inside: The nodes, the last one first.

    """

    queries: Value
    keys: Value
    values: Value
    masks: tuple[Value, ...]
    turned: bool
    attributes: Mapping[str, AttrValue]
    inside: tuple[Node, ...]


@attrs.define(eq=False)
class _Scores:
    """What is known of the scores so far, from the softmax backwards."""

    scale: float = 1.0
    masks: list[Value] = attrs.field(factory=list[Value], init=False)
    hides: set[bool] = attrs.field(factory=set[bool], init=False)
    causal: bool = False


def match_attention(
    root: Node, elements: Mapping[Value, tuple[Dim, ...]]
) -> Attention | None:
    """Return the attention that ends in the matmul *root*, or None."""
    trail = pattern.Trail(elements)
    trail.step(root.results[0], "matmul")
    weights, values = root.operands[:2]
    softmax = _softmax(trail, weights)
    if softmax is None or root.results[0].type is None:
        return None
    scores = _Scores()
    matmul = _matmul(trail, softmax.operands[0], scores)
    if matmul is None or len(scores.hides) > 1:
        return None
    if not pattern.same_shape(softmax.operands[0], matmul.results[0]):
        return None  # a mask that makes the scores larger
    queries, q_scale = _scaled(trail, matmul.operands[0])
    turned_keys, k_scale = _scaled(trail, matmul.operands[1])
    keys, turned = _keys(trail, turned_keys)
    if not _fits(root, queries, turned_keys, values):
        return None
    by_roots = q_scale == k_scale != 1.0
    noted = pattern.one_call(trail.inside)
    fused = by_roots if noted is None else noted
    if fused:
        keys, values = _shared(trail, keys), _shared(trail, values)
    attributes: dict[str, AttrValue] = {}
    _note_scale(attributes, scores.scale * q_scale * k_scale, queries)
    if scores.causal:
        attributes["causal"] = True
    if scores.hides == {True}:
        attributes["mask_hides"] = True
    inside = tuple(trail.inside)
    if not fused:
        letters = _Letters(trail, queries, turned_keys, values, softmax, matmul)
        attributes["spelled_out"] = pattern.calls(inside, letters)
    masks = tuple(scores.masks)
    return Attention(queries, keys, values, masks, turned, attributes, inside)


def _softmax(trail: pattern.Trail, value: Value) -> Node | None:
    """A softmax over keys; PyTorch puts zeros where all keys of a row are hidden."""
    value = trail.through(value, pattern.CASTS)
    guard = trail.step(value, "where")
    if guard is not None:
        test = trail.step(guard.operands[0], "isnan")
        zero = trail.uniform(guard.operands[1])
        value = guard.operands[2]
        if test is None or test.operands[0] is not value or zero != 0:
            return None
    node = trail.step(value, "softmax")
    if node is None or node.operands[0].type is None:
        return None
    rank = node.operands[0].type.rank
    last = node.attributes.integer("axis") % rank == rank - 1
    return node if last and rank in _RANKS else None


def _matmul(trail: pattern.Trail, value: Value, scores: _Scores) -> Node | None:
    """Follow the scores back to the matmul; note scale and masks on the way."""
    value = trail.through(value, pattern.CASTS)
    node = value.producer
    if node is None:
        return None
    if node.op == "matmul":
        return trail.step(value, "matmul")
    if node.op in ("mul", "div"):
        inner, scale = _scaled(trail, value)
        if inner is value:
            return None
        scores.scale *= scale
        return _matmul(trail, inner, scores)
    unscaled = math.isclose(scores.scale, 1.0)  # a mask under a scale is scaled, too
    if node.op == "add" and unscaled:
        return _added(trail, node, scores)
    return _chosen(trail, node, scores) if node.op == "where" and unscaled else None


def _scaled(trail: pattern.Trail, value: Value) -> tuple[Value, float]:
    """Go through a product with, or quotient by, a number; else 1."""
    found = trail.by_number(value, "mul", "div")
    if found is None or found[1] == 0:
        return value, 1.0
    is_quotient = value.producer is not None and value.producer.op == "div"
    return found[0], 1 / found[1] if is_quotient else found[1]


def _added(trail: pattern.Trail, node: Node, scores: _Scores) -> Node | None:
    trail.step(node.results[0], "add")
    for inner, mask in pattern.orders(node):
        mark, before = len(trail.inside), attrs.evolve(scores)
        matmul = _matmul(trail, inner, scores)
        if matmul is not None:
            if _is_causal(pattern.Trail(trail.elements), mask):
                scores.causal = True
            else:
                scores.masks.append(mask)
            return matmul
        del trail.inside[mark:]
        scores.scale, scores.causal = before.scale, before.causal
    return None


def _is_causal(trail: pattern.Trail, mask: Value) -> bool:
    """`where(tril(ones) == 0, -inf, 0)`, as exporters write `is_causal`."""
    chosen = trail.step(mask, "where")
    test = None if chosen is None else trail.step(chosen.operands[0], "equal")
    if chosen is None or test is None:
        return False
    hidden, shown = (trail.uniform(value) for value in chosen.operands[1:])
    if hidden is None or hidden > _HIDDEN or shown != 0:
        return False
    return any(
        trail.uniform(zero) == 0 and _is_lower_triangle(trail, triangle)
        for triangle, zero in pattern.orders(test)
    )


def _is_lower_triangle(trail: pattern.Trail, value: Value) -> bool:
    """Whether *value* is `tril(ones)`."""
    node = trail.step(value, "trilu")
    if node is None or node.attributes.flag("upper") or len(node.operands) != 1:
        return False
    return trail.uniform(node.operands[0]) == 1


def _chosen(trail: pattern.Trail, node: Node, scores: _Scores) -> Node | None:
    """`where(mask, scores, -inf)`, or the other way round."""
    trail.step(node.results[0], "where")
    mask, shown, hidden = node.operands
    hides = trail.uniform(hidden) is None
    if hides:
        shown, hidden = hidden, shown
    lowest = trail.uniform(hidden)
    if lowest is None or lowest > _HIDDEN:
        return None
    scores.masks.append(mask)
    scores.hides.add(hides)
    return _matmul(trail, shown, scores)


def _keys(trail: pattern.Trail, value: Value) -> tuple[Value, bool]:
    """The keys before their transposition; True if they are left transposed."""
    mark = len(trail.inside)
    node = trail.step(value, "transpose")
    if node is not None and value.type is not None:
        if node.attributes.integers("perm") == _SWAPPED.get(value.type.rank):
            return node.operands[0], False
        del trail.inside[mark:]
        return value, True
    outer = trail.step(value, "reshape")  # PyTorch's exporter merges batch and heads
    inner = None if outer is None else trail.step(outer.operands[0], "transpose")
    merged = None if inner is None else trail.step(inner.operands[0], "reshape")
    if inner is None or merged is None or value.type is None:
        del trail.inside[mark:]
        return value, True
    keys = merged.operands[0]
    swapped = inner.attributes.integers("perm") == _SWAPPED[3]
    if swapped and _is_swapped(keys.type, value.type):
        return keys, False
    del trail.inside[mark:]
    return value, True


def _is_swapped(left: TensorType | None, right: TensorType) -> bool:
    if left is None or left.rank != max(_RANKS):
        return False
    *lead, length, width = left.shape
    return right.shape == (*lead, width, length)


def _shared(trail: pattern.Trail, value: Value) -> Value:
    """Heads before the call repeats them for groups of queries."""
    mark = len(trail.inside)
    merged = trail.step(value, "reshape")
    wide = None if merged is None else trail.step(merged.operands[0], "expand")
    split = None if wide is None else trail.step(wide.operands[0], "unsqueeze")
    if split is None or value.type is None or split.operands[0].type is None:
        del trail.inside[mark:]
        return value
    heads = split.operands[0]
    few, many = split.operands[0].type.shape, value.type.shape
    same = len(few) == len(many) and (few[0], *few[2:]) == (many[0], *many[2:])
    called = all(_CALL in n.location.origin for n in trail.inside[mark:])
    if same and called and split.attributes.get("axes") == (2,):
        return heads
    del trail.inside[mark:]
    return value


def _fits(root: Node, queries: Value, turned: Value, values: Value) -> bool:
    """Whether queries, keys and values are of one batch, none of them broadcast.

    They are floats: a quantised matmul has zero points, too.
    """
    if queries.type is None or not queries.type.dtype.is_float:
        return False
    types = [v.type for v in (queries, turned, values, root.results[0])]
    shapes = [t.shape for t in types if t is not None]
    if len(shapes) != len(types) or len(shapes[0]) not in _RANKS:
        return False
    return all(shape[:-2] == shapes[0][:-2] for shape in shapes)


def _note_scale(attributes: dict[str, AttrValue], scale: float, queries: Value) -> None:
    """Write the scale down where it is not the usual one."""
    width = None if queries.type is None else queries.type.shape[-1]
    usual = width**-0.5 if isinstance(width, int) and width > 0 else None
    if usual is None or not math.isclose(scale, usual, rel_tol=1e-3):
        attributes["scale"] = scale


@attrs.frozen(eq=False)
class _Letters:
    """What stands for an operand of the calls of attention."""

    trail: pattern.Trail
    queries: Value
    keys: Value
    values: Value
    softmax: Node
    matmul: Node

    def __call__(self, value: Value) -> str | None:
        if self.trail.uniform(value) is not None:
            return None
        for letter, known in (("q", self.queries), ("k", self.keys)):
            if value is known or value in self._scaled(known):
                return letter
        if value is self.values:
            return "v"
        return "s" if value.producer in self.trail.inside else "m"

    def _scaled(self, value: Value) -> tuple[Value, ...]:
        return tuple(
            operand
            for operand in self.matmul.operands
            if operand.producer is not None and value in operand.producer.operands
        )
