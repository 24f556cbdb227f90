"""How an axis that ranks share passes through an op: from operands to results.

A rule is asked with the axis of each operand that is split, None for those that every
rank has whole, and answers with the axis of every result. None means that the op cannot
run on parts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from perfc.ir import Node, Value
from perfc.ir.dims import Dim, product
from perfc.ir.node_kinds import (
    has_trait,
    is_constant,
)
from perfc.ir.opdef import Trait
from perfc.passes.graphs import (
    typed,
)

Axes: TypeAlias = Sequence[int | None]
Rule: TypeAlias = Callable[[Node, Axes], "Axes | None"]

HEADS = 1
QUERIES_KEYS_VALUES = 3
BY_HEADS = 4
"""Ranks of tensors that have an axis of heads, which is `HEADS`."""


def aligned(value: Value, axis: int, out: Value) -> int:
    """Return which axis of *value* stands over *axis* of *out*; negative for none."""
    return axis - (typed(out).rank - typed(value).rank)


def is_whole(value: Value, axis: int, out: Value) -> bool:
    """Whether an operand does not reach along an axis: it is repeated there."""
    place = aligned(value, axis, out)
    return place < 0 or typed(value).shape[place] == 1


def _elementwise(node: Node, axes: Axes) -> Axes | None:
    """All operands are split at one axis of the result, or repeated along it."""
    out = node.results[0]
    pairs = list(zip(node.operands, axes, strict=True))
    found = {a + typed(out).rank - typed(v).rank for v, a in pairs if a is not None}
    if len(found) > 1:
        return None
    (axis,) = found
    fits = all(is_whole(v, axis, out) for v, a in pairs if a is None)
    return [axis] * len(node.results) if fits else None


def _along_rows(node: Node, axes: Axes) -> Axes | None:
    """Softmax and norms compute whole rows: along any other axis they split.

    Rows of a norm reach from its axis to the last one.
    """
    axis, rank = axes[0], typed(node.operands[0]).rank
    if axis is None or any(a is not None for a in axes[1:]):
        return None
    normalized = node.attributes.integer("axis", -1) % rank
    after = axis > normalized and not has_trait(node, Trait.STATISTICS)
    keeps = axis < normalized or after
    return [axis] * len(node.results) if keeps else None


def _transpose(node: Node, axes: Axes) -> Axes | None:
    axis = axes[0]
    perm = node.attributes.integers("perm")
    return None if axis is None else [perm.index(axis)]


def _viewed(node: Node, axes: Axes) -> Axes | None:
    """The axis, its first factor, or what it is the first factor of."""
    axis = axes[0]
    if axis is None or (takes_sizes(node) and sizes_of(node) is None):
        return None
    before, after = typed(node.operands[0]).shape, typed(node.results[0]).shape
    found = viewed_axis(before, after, axis)
    return None if found is None else [found]


def viewed_axis(before: Sequence[Dim], after: Sequence[Dim], axis: int) -> int | None:
    """Return where the elements of an axis are in another shape of as many."""
    prefix, size = product(before[:axis]), before[axis]
    for place, dim in enumerate(after):
        if product(after[:place]) == prefix and dim != 1:
            return place if dim == size or _is_factor(dim, size) else None
    return None


def _is_factor(left: Dim, right: Dim) -> bool:
    """Whether one of two numbers divides the other."""
    if not isinstance(left, int) or not isinstance(right, int):
        return False
    return right % left == 0 or left % right == 0


def _expand(node: Node, axes: Axes) -> Axes | None:
    axis, out = axes[0], node.results[0]
    if axis is None or sizes_of(node) is None:
        return None
    place = axis + typed(out).rank - typed(node.operands[0]).rank
    same = typed(out).shape[place] == typed(node.operands[0]).shape[axis]
    return [place] if same else None


def _split(node: Node, axes: Axes) -> Axes | None:
    """Each piece is split, where it is cut along the axis, too."""
    fits = axes[0] is not None and len(node.operands) == 1
    return list(axes[:1]) * len(node.results) if fits else None


def _concat(node: Node, axes: Axes) -> Axes | None:
    axis = axes[0]
    joined = node.attributes.integer("axis") % typed(node.results[0]).rank
    return [axis] if set(axes) == {axis} and axis not in (None, joined) else None


def _attention(node: Node, axes: Axes) -> Axes | None:
    """Heads are apart; a mask is the same for all of them."""
    by_heads = typed(node.operands[0]).rank == BY_HEADS
    if not by_heads or set(axes[:QUERIES_KEYS_VALUES]) != {HEADS}:
        return None
    out, masks = node.results[0], node.operands[QUERIES_KEYS_VALUES:]
    split = axes[QUERIES_KEYS_VALUES:]
    fits = all(
        axis == aligned(mask, HEADS, out)
        or (axis is None and is_whole(mask, HEADS, out))
        for mask, axis in zip(masks, split, strict=True)
    )
    return [HEADS] if fits else None


def _rotary(node: Node, axes: Axes) -> Axes | None:
    axis, out = axes[0], node.results[0]
    if axis is None or axis == typed(out).rank - 1:
        return None
    fits = all(is_whole(angles, axis, out) for angles in node.operands[1:])
    return [axis] if fits and set(axes[1:]) == {None} else None


def _matmul(node: Node, axes: Axes) -> Axes | None:
    """Matmuls of batches: an axis of batches, of both."""
    ranks = {typed(value).rank for value in (*node.operands, *node.results)}
    axis = axes[0]
    if axis is None or set(axes) != {axis} or len(ranks) > 1:
        return None
    return [axis] if axis < ranks.pop() - 2 else None


TAKE_SIZES: Mapping[str, int] = {"reshape": 1, "expand": 1, "fill": 0}
"""Ops of which an operand says how large the result is, and which one does."""


def takes_sizes(node: Node) -> bool:
    """Whether an operand of a node says how large its result is."""
    return node.op in TAKE_SIZES


def sizes_of(node: Node) -> tuple[Dim, ...] | None:
    """Return the sizes that an op of `TAKE_SIZES` is given, if a constant says them."""
    producer = node.operands[TAKE_SIZES[node.op]].producer
    if producer is None or not is_constant(producer):
        return None
    return producer.attributes.dims("elements")


_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("dropout", "identity", "alias"), _elementwise),
    **dict.fromkeys(("softmax", "layer_norm", "rms_norm"), _along_rows),
    **dict.fromkeys(("reshape", "flatten", "squeeze", "unsqueeze"), _viewed),
    "attention": _attention,
    "concat": _concat,
    "expand": _expand,
    "matmul": _matmul,
    "rotary": _rotary,
    "split": _split,
    "transpose": _transpose,
}
"""Rules by op name; those of elementwise ops are left out."""


def rule_of(node: Node) -> Rule | None:
    """Return the rule by which a node computes parts of its results, if it can."""
    rule = _RULES.get(node.op)
    return _elementwise if has_trait(node, Trait.ELEMENTWISE) else rule
