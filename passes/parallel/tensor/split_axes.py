"""How an axis that ranks share passes through an op: from operands to results.

A rule is asked with the axis of each operand that is split, None for those that every
rank has whole, and answers with the axis of every result. None means that the op cannot
run on parts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from perfc.ir import Node, Value, node_kinds
from perfc.ir.dims import Dim, product
from perfc.ir.opdef import Trait
from perfc.ir.ops.einsum import einsum_labels
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


def elementwise(node: Node, axes: Axes) -> Axes | None:
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
    after = axis > normalized and not node_kinds.has_trait(node, Trait.STATISTICS)
    keeps = axis < normalized or after
    return [axis] * len(node.results) if keeps else None


def _transpose(node: Node, axes: Axes) -> Axes | None:
    axis = axes[0]
    perm = node.attributes.integers("perm")
    return None if axis is None else [perm.index(axis)]


def _viewed(node: Node, axes: Axes) -> Axes | None:
    """The axis, its first factor, or what it is a factor of."""
    found = None if axes[0] is None else viewed_part(node, axes[0], 1)
    return None if found is None else found[:1]


def is_reshaped(node: Node) -> bool:
    """Whether a node puts the elements of its operand, in order, in another shape."""
    return rule_of(node) is _viewed


def viewed_part(node: Node, axis: int, blocks: Dim) -> tuple[int, Dim] | None:
    """Return along which axis of its result a view is split, and in how many blocks."""
    if takes_sizes(node) and sizes_of(node) is None:
        return None
    before, after = typed(node.operands[0]).shape, typed(node.results[0]).shape
    return viewed_axis(before, after, axis, blocks)


def viewed_axis(
    before: Sequence[Dim], after: Sequence[Dim], axis: int, blocks: Dim = 1
) -> tuple[int, Dim] | None:
    """Return where the elements of an axis are in another shape of as many.

    Ranks share each of *blocks*, one behind another along the axis.
    """
    prefix, size = product(before[:axis]) * blocks, before[axis] // blocks
    for place, dim in enumerate(after):
        outside = product(after[:place])
        inside = prefix // outside if prefix != outside else 1
        rest = dim // inside
        if outside * inside == prefix and rest * inside == dim and rest != 1:
            fits = rest == size or _is_factor(rest, size)
            return (place, inside) if fits else None
    return None


def _is_factor(left: Dim, right: Dim) -> bool:
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
    """Each piece is split, where it is cut along the axis, too, but into ones."""
    axis = axes[0]
    if axis is None or len(node.operands) > 1:
        return None
    fits = all(typed(piece).shape[axis] != 1 for piece in node.results)
    return [axis] * len(node.results) if fits else None


def _unchanged(node: Node, axes: Axes) -> Axes | None:
    """Along an axis that stays as long as it is nothing is padded or repeated."""
    axis, before, after = axes[0], typed(node.operands[0]), typed(node.results[0])
    if axis is None or set(axes[1:]) > {None} or before.rank != after.rank:
        return None
    return [axis] if before.shape[axis] == after.shape[axis] else None


def _slice(node: Node, axes: Axes) -> Axes | None:
    """A range of the axis itself is split as a piece of `split` is.

    So is every other element, or every third, from one end to the other.
    """
    axis = axes[0]
    if axis is None or _unchanged(node, axes) is not None:
        return _unchanged(node, axes)
    bounds = bounds_of(node, axis)
    if bounds is None:
        return None
    _, start, end, step = bounds
    through = start < step and end == typed(node.operands[0]).shape[axis]
    return [axis] if step == 1 or through else None


def bounds_of(node: Node, axis: int) -> tuple[int, int, int, int] | None:
    """Return where a slice says its range of an axis, and start, end and step of it.

    None if data decides.
    """
    given = [elements_of(value) for value in node.operands[1:]]
    dim, rank = typed(node.operands[0]).shape[axis], typed(node.operands[0]).rank
    if len(given) < _BOUNDS_AND_AXES or None in given or not isinstance(dim, int):
        return None
    starts, ends, along, *steps = (e or () for e in given)
    places = [n for n, a in enumerate(along) if isinstance(a, int) and a % rank == axis]
    bounds = [part[n] for part in (starts, ends, *steps) for n in places]
    numbers = [bound for bound in bounds if isinstance(bound, int)]
    if len(places) != 1 or len(numbers) != len(bounds):
        return None
    return places[0], *slice(*numbers).indices(dim)


def _gather(node: Node, axes: Axes) -> Axes | None:
    """Slices along another axis: all ranks take the same ones."""
    axis, picked = axes[0], node.attributes.integer("axis", 0)
    picked %= typed(node.operands[0]).rank
    if axis is None or axis == picked or axes[1] is not None:
        return None
    return [axis if axis < picked else axis + typed(node.operands[1]).rank - 1]


def _reduce(node: Node, axes: Axes) -> Axes | None:
    """Sums and means of whole rows, along other axes."""
    axis, rank = axes[0], typed(node.operands[0]).rank
    if axis is None or len(node.operands) > 1:
        return None
    reduced = {a % rank for a in node.attributes.integers("axes") or range(rank)}
    if axis in reduced:
        return None
    before = 0 if node.attributes.flag("keepdims") else sum(a < axis for a in reduced)
    return [axis - before] * len(node.results)


def _concat(node: Node, axes: Axes) -> Axes | None:
    """Parts are joined along the axis itself as `split` cuts there."""
    return axes[:1] if set(axes) == {axes[0]} else None


def _stack(node: Node, axes: Axes) -> Axes | None:
    axis, added = axes[0], node.attributes.integer("axis")
    if axis is None or set(axes) != {axis}:
        return None
    return [axis + (added % typed(node.results[0]).rank <= axis)]


def _einsum(node: Node, axes: Axes) -> Axes | None:
    """A letter that the result has, in all operands that have it."""
    ranks = [typed(value).rank for value in node.operands]
    terms, out = einsum_labels(node.attributes.text("equation"), ranks)
    pairs = list(zip(terms, axes, strict=True))
    letters = {term[axis] for term, axis in pairs if axis is not None}
    (letter, *others) = letters
    fits = all(axis is not None or letter not in term for term, axis in pairs)
    return [out.index(letter)] if fits and not others and letter in out else None


def _attention(node: Node, axes: Axes) -> Axes | None:
    """Heads are apart; a mask is the same for all of them, as a single key may be."""
    by_heads = typed(node.operands[0]).rank == BY_HEADS
    heads = zip(node.operands, axes[:QUERIES_KEYS_VALUES], strict=False)
    shared = all(
        axis == HEADS or (axis is None and typed(x).shape[HEADS] == 1)
        for x, axis in heads
    )
    if not by_heads or axes[0] is None or not shared:
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
    """Matmuls of batches: an axis of batches, of both or repeated for one."""
    found, rank = elementwise(node, axes), typed(node.results[0]).rank
    same = all(typed(value).rank == rank for value in node.operands)
    return found if same and found and found[0] in range(rank - 2) else None


_BOUNDS_AND_AXES = 3
"""Operands of a slice that says along which axes it is: starts, ends, axes."""
TAKE_SIZES: Mapping[str, int] = {"reshape": 1, "expand": 1, "fill": 0}
"""Ops of which an operand says how large the result is, and which one does."""


def takes_sizes(node: Node) -> bool:
    """Whether an operand of a node says how large its result is."""
    return node.op in TAKE_SIZES


def sizes_of(node: Node) -> tuple[Dim, ...] | None:
    """Return the sizes that an op of `TAKE_SIZES` is given, if a constant says them."""
    return elements_of(node.operands[TAKE_SIZES[node.op]])


def elements_of(value: Value) -> tuple[Dim, ...] | None:
    """Return the elements of a constant; None if it is computed."""
    producer = value.producer
    if producer is None or not node_kinds.is_constant(producer):
        return None
    return producer.attributes.dims("elements")


_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("dropout", "identity", "alias", "assign", "copy"), elementwise),
    **dict.fromkeys(("pad", "tile"), _unchanged),
    **dict.fromkeys(("softmax", "layer_norm", "rms_norm"), _along_rows),
    **dict.fromkeys(("reshape", "flatten", "squeeze", "unsqueeze"), _viewed),
    "attention": _attention,
    "concat": _concat,
    "einsum": _einsum,
    "expand": _expand,
    "gather": _gather,
    "matmul": _matmul,
    "reduce": _reduce,
    "rotary": _rotary,
    "slice": _slice,
    "split": _split,
    "stack": _stack,
    "transpose": _transpose,
}
"""Rules by op name; those of elementwise ops are left out."""


def keeps_elements(node: Node) -> bool:
    """Whether each element of a result comes from one of operand 0, as of a view."""
    return rule_of(node) in (elementwise, _viewed, _transpose)


def origins(node: Node, axis: int) -> Sequence[tuple[Value, int]]:
    """Return which axes of operands an axis of a result is, if these have it whole."""
    if not node.operands:
        return []
    x, out = node.operands[0], node.results[0]
    if rule_of(node) is elementwise:
        reach = [v for v in node.operands if not is_whole(v, axis, out)]
        return [(v, aligned(v, axis, out)) for v in reach]
    if (perm := node_kinds.permutation(node)) is not None:
        return [(x, perm[axis])]
    if rule_of(node) is _viewed:
        before = viewed_axis(typed(out).shape, typed(x).shape, axis)
        return [] if before is None else [(x, before[0])]
    if rule_of(node) in (_slice, _unchanged, _expand) and not is_whole(x, axis, out):
        return [(x, aligned(x, axis, out))]
    return []


def rule_of(node: Node) -> Rule | None:
    """Return the rule by which a node computes parts of its results, if it can."""
    rule = _RULES.get(node.op)
    return elementwise if node_kinds.has_trait(node, Trait.ELEMENTWISE) else rule
