"""Recognise rotary position embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from perfc.ir import AnyKey, AttrValue, Node, Program, Value
from perfc.ir.dims import Dim
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.raising.pattern import Raised, Trail, orders, raise_patterns

_STEPS = 4
"""Operand of a slice that has its steps; old exporters write none where all are 1."""

_CALLS = ("mul(x, c)", "neg(h)", "cat(x)", "mul(x, s)", "add(x, x)")
"""PyTorch has no call for it: the source always spells it out."""


@attrs.frozen
class RaiseRotary(Transform):
    """Turn `x cos + (-x2, x1) sin`, x1 and x2 the halves of x, into `rotary`.

    Attributes:
        spelled_out: Whether to raise what the source itself spells out in several
            calls. A training step is derived from these calls.

    """

    name: ClassVar[str] = "raise-rotary"
    phase: ClassVar[Phase] = Phase.SOURCE
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})
    preserves: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    spelled_out: bool = True

    def run(self, program: Program, ctx: PassContext) -> None:
        """Raise in every op graph."""
        for rank in program.classes:
            if rank.ops is not None:
                matcher = _Matcher(ctx.get(ELEMENTS, rank.ops))
                raise_patterns(
                    rank.ops, ("add",), matcher.match, spelled_out=self.spelled_out
                )


@attrs.frozen(eq=False)
class _Matcher:
    elements: Mapping[Value, tuple[Dim, ...]]

    def match(self, root: Node) -> Raised | None:
        for straight, turned in orders(root):
            trail = Trail(self.elements)
            trail.step(root.results[0], "add")
            first = trail.step(straight, "mul")
            second = trail.step(turned, "mul")
            if first is None or second is None:
                continue
            found = _rotation(trail, first, second)
            if found is not None and found[0].type == root.results[0].type:
                attributes: dict[str, AttrValue] = {"spelled_out": _CALLS}
                return Raised("rotary", found, attributes, tuple(trail.inside))
        return None


def _rotation(trail: Trail, straight: Node, turned: Node) -> tuple[Value, ...] | None:
    """Return x, cos and sin."""
    mark = len(trail.inside)
    for half, sin in orders(turned):
        for x, cos in orders(straight):
            if _is_rotated(trail, half, x):
                return x, cos, sin
            del trail.inside[mark:]
    return None


def _is_rotated(trail: Trail, value: Value, x: Value) -> bool:
    """Whether *value* is `cat(-x[..., h:], x[..., :h])`."""
    joined = trail.step(value, "concat")
    if joined is None or len(joined.operands) != 2 or x.type is None:
        return False
    last = joined.attributes.integer("axis") % x.type.rank == x.type.rank - 1
    width = x.type.shape[-1]
    negated = trail.step(joined.operands[0], "neg")
    if negated is None or not last or not isinstance(width, int) or width % 2:
        return False
    upper = _is_half(trail, negated.operands[0], x, width // 2)
    return upper and _is_half(trail, joined.operands[1], x, 0)


def _is_half(trail: Trail, value: Value, x: Value, start: int) -> bool:
    """Whether *value* is the half of the last axis of *x* that begins at *start*."""
    node = trail.step(value, "slice", "split")
    if node is None or node.operands[0] is not x or x.type is None:
        return False
    if value.type is None or value.type.shape[-1] * 2 != x.type.shape[-1]:
        return False
    if value.type.shape[:-1] != x.type.shape[:-1]:
        return False
    if node.op == "split":
        return len(node.results) == 2 and (value is node.results[0]) == (start == 0)
    begins = trail.elements.get(node.operands[1])
    stepped = len(node.operands) > _STEPS
    steps = trail.elements.get(node.operands[_STEPS]) if stepped else (1,)
    return begins == (start,) and steps == (1,)
