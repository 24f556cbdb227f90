"""Recognise activations that are spelled out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

import attrs

from perfc.ir import AnyKey, AttrValue, Node, Program, Value
from perfc.ir.dims import Dim
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.raising import pattern

_DEPTH = 3
_SQRT_2 = math.sqrt(2)
_TANH_RATE = math.sqrt(2 / math.pi)
_TANH_CUBE = 0.044715
_SIGMOID_RATE = 1.702


@attrs.frozen
class RaiseActivation(Transform):
    """Turn GELU, SiLU, hard swish and Mish, however spelled, into one op.

    Each is a product of its input, a gate and a number: `0.5 x (1 + erf(x/√2))`.
    Where the exporter notes that the source makes several calls of it, or the
    form is one that no exporter writes for one call, the attribute `spelled_out`
    lists the calls, which are what eager PyTorch launches.

    Attributes:
        spelled_out: Whether to raise what the source itself spells out in several
            calls. A training step is derived from these calls.

    """

    name: ClassVar[str] = "raise-activation"
    phase: ClassVar[Phase] = Phase.SOURCE
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})
    preserves: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    spelled_out: bool = True

    def run(self, program: Program, ctx: PassContext) -> None:
        """Raise in every op graph."""
        for rank in program.classes:
            if rank.ops is not None:
                matcher = _Matcher(ctx.get(ELEMENTS, rank.ops))
                pattern.raise_patterns(
                    rank.ops,
                    ("mul", "div"),
                    matcher.match,
                    spelled_out=self.spelled_out,
                )


@attrs.frozen(eq=False)
class _Gate:
    """What the input is multiplied by.

    Attributes:
        x: The input.
        op: The activation.
        factor: The number that completes the product.
        attributes: Of the activation.
        by_hand: Whether no exporter writes this for one call.

    """

    x: Value
    op: str
    factor: float = 1.0
    attributes: Mapping[str, AttrValue] = attrs.field(factory=dict[str, AttrValue])
    by_hand: bool = False


@attrs.frozen(eq=False)
class _Matcher:
    elements: Mapping[Value, tuple[Dim, ...]]

    def match(self, root: Node) -> pattern.Raised | None:
        for value in _leaves(root.results[0], _DEPTH):
            producer = value.producer
            rule = None if producer is None else _GATES.get(producer.op)
            if rule is None:
                continue
            behind = pattern.Trail(self.elements)
            gate = rule(behind, value)
            raised = None if gate is None else self._raised(root, value, gate, behind)
            if raised is not None:
                return raised
        return None

    def _raised(
        self, root: Node, value: Value, gate: _Gate, behind: pattern.Trail
    ) -> pattern.Raised | None:
        trail = pattern.Trail(self.elements)
        wanted = [gate.x, value]
        factor = _product(trail, root.results[0], wanted)
        close = factor is not None and math.isclose(factor, gate.factor, rel_tol=1e-3)
        if wanted or not close or gate.x.type != root.results[0].type:
            return None
        inside = tuple(dict.fromkeys((*trail.inside, *behind.inside)))
        attributes = dict(gate.attributes)
        single = pattern.one_call(inside)
        by_hand = gate.by_hand or _is_halved_first(trail, gate.x)
        if single is False or (single is None and by_hand):
            attributes["spelled_out"] = pattern.calls(inside, self._letter)
        return pattern.Raised(gate.op, (gate.x,), attributes, inside)

    def _letter(self, value: Value) -> str | None:
        return None if pattern.Trail(self.elements).number(value) is not None else "x"


def _leaves(value: Value, depth: int) -> Iterator[Value]:
    """Values that a tree of products and quotients multiplies."""
    node = value.producer
    if node is None or node.op not in ("mul", "div") or depth == 0:
        yield value
        return
    for operand in node.operands:
        yield operand
        yield from _leaves(operand, depth - 1)


def _product(trail: pattern.Trail, value: Value, wanted: list[Value]) -> float | None:
    """Return the number in a product of *wanted* values, which are ticked off."""
    if value in wanted:
        wanted.remove(value)
        return 1.0
    if (number := trail.number(value)) is not None:
        return number
    node = trail.step(value, "mul", "div")
    if node is None:
        return None
    if node.op == "div":
        over, under = _product(trail, node.operands[0], wanted), node.operands[1]
        by = trail.number(under)
        return over / by if over is not None and by else None
    left = _product(trail, node.operands[0], wanted)
    right = None if left is None else _product(trail, node.operands[1], wanted)
    return None if left is None or right is None else left * right


def _is_halved_first(trail: pattern.Trail, x: Value) -> bool:
    """Whether the input itself is halved, as people write GELU by hand."""
    return any(
        node.op in ("mul", "div")
        and x in node.operands
        and any(trail.number(v) is not None for v in node.operands)
        for node in trail.inside
    )


def _one_plus(trail: pattern.Trail, value: Value) -> _Gate | None:
    """`1 + erf(x / √2)`, or `1 + tanh(√(2/π) (x + 0.044715 x³))`."""
    inner = trail.by(value, "add", 1.0)
    if inner is None:
        return None
    erf = trail.step(inner, "erf")
    if erf is not None:
        scaled = erf.operands[0]
        over = trail.by(scaled, "div", _SQRT_2)
        x = trail.by(scaled, "mul", 1 / _SQRT_2) if over is None else over
        return None if x is None else _Gate(x, "gelu", 0.5)
    tanh = trail.step(inner, "tanh")
    rated = None if tanh is None else trail.by(tanh.operands[0], "mul", _TANH_RATE)
    total = None if rated is None else trail.step(rated, "add")
    for x, cubed in () if total is None else pattern.orders(total):
        cube = trail.by(cubed, "mul", _TANH_CUBE)
        if cube is not None and _is_cube(trail, cube, x):
            return _Gate(x, "gelu", 0.5, {"approximate": "tanh"})
    return None


def _is_cube(trail: pattern.Trail, value: Value, x: Value) -> bool:
    base = trail.by(value, "pow", 3.0)
    if base is not None:
        return base is x
    wanted = [x, x, x]
    return _product(trail, value, wanted) == 1.0 and not wanted


def _sigmoid(trail: pattern.Trail, value: Value) -> _Gate | None:
    node = trail.step(value, "sigmoid")
    if node is None:
        return None
    x = trail.by(node.operands[0], "mul", _SIGMOID_RATE)
    if x is None:
        return _Gate(node.operands[0], "silu")
    return _Gate(x, "gelu", 1.0, {"approximate": "sigmoid"}, by_hand=True)


def _hard_sigmoid(trail: pattern.Trail, value: Value) -> _Gate | None:
    node = trail.step(value, "hardsigmoid")
    if node is None:
        return None
    slope, offset = (
        node.attributes.get(n, d) for n, d in (("alpha", 0.2), ("beta", 0.5))
    )
    is_swish = isinstance(slope, float) and math.isclose(slope, 1 / 6, rel_tol=1e-3)
    return _Gate(node.operands[0], "hardswish") if is_swish and offset == 0.5 else None


def _clipped(trail: pattern.Trail, value: Value) -> _Gate | None:
    """`clip(x + 3, 0, 6)`, divided by 6 afterwards."""
    node = trail.step(value, "clip")
    if node is None or (node.attributes.get("min"), node.attributes.get("max")) != (
        0.0,
        6.0,
    ):
        return None
    x = trail.by(node.operands[0], "add", 3.0)
    return None if x is None else _Gate(x, "hardswish", 1 / 6, by_hand=True)


def _tanh(trail: pattern.Trail, value: Value) -> _Gate | None:
    """`tanh(softplus(x))`; PyTorch's exporter guards the softplus with a `where`."""
    node = trail.step(value, "tanh")
    if node is None:
        return None
    inner = node.operands[0]
    guard = trail.step(inner, "where")
    if guard is not None:
        trail.step(guard.operands[0], "greater")
        inner = guard.operands[2]
    soft = trail.step(inner, "softplus")
    if soft is None or (
        guard is not None and guard.operands[1] is not soft.operands[0]
    ):
        return None
    return _Gate(soft.operands[0], "mish")


_GATES: Mapping[str, Callable[[pattern.Trail, Value], _Gate | None]] = {
    "add": _one_plus,
    "sigmoid": _sigmoid,
    "hardsigmoid": _hard_sigmoid,
    "clip": _clipped,
    "tanh": _tanh,
}
"""Gates by the op that ends them."""
