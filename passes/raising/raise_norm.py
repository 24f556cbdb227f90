"""Recognise layer, RMS and group norms that are spelled out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from perfc.ir import AnyKey, AttrValue, Node, Program, Value
from perfc.ir.dims import Dim
from perfc.ir.ops.reduction import reduced_axes
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.facts import ELEMENTS, TYPED
from perfc.passes.raising import pattern

_DECOMPOSED = "aten.add.Scalar"
"""How PyTorch adds epsilon where it takes its own `rms_norm` apart on export."""


@attrs.frozen
class RaiseNorm(Transform):
    """Turn layer, RMS and group norms, spelled out, into one op each.

    Exporters write `F.layer_norm` out below opset 17, `F.group_norm` as an
    instance norm between reshapes below 18, `F.rms_norm` below 23. A layer norm
    that nothing is noted of is taken for one call, an RMS norm for calls of the
    source: PyTorch's other exporter cannot export `F.rms_norm`.

    Attributes:
        spelled_out: Whether to raise what the source itself spells out in several
            calls. A training step is derived from these calls.

    """

    name: ClassVar[str] = "raise-norm"
    phase: ClassVar[Phase] = Phase.SOURCE
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})
    preserves: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    spelled_out: bool = True

    def run(self, program: Program, ctx: PassContext) -> None:
        """Raise in every op graph."""
        for rank in program.classes:
            if rank.ops is None:
                continue
            matcher = _Matcher(ctx.get(ELEMENTS, rank.ops), set(rank.ops.parameters))
            roots = ("add", "mul", "div", "reshape")
            pattern.raise_patterns(
                rank.ops, roots, matcher.match, spelled_out=self.spelled_out
            )


@attrs.frozen(eq=False)
class _Core:
    """A norm without scale and bias."""

    op: str
    x: Value
    axis: int
    epsilon: float


@attrs.frozen(eq=False)
class _Matcher:
    elements: Mapping[Value, tuple[Dim, ...]]
    parameters: set[Value]

    def match(self, root: Node) -> pattern.Raised | None:
        """Try the longest form first: with bias, with scale, bare."""
        result = root.results[0]
        for weights in (("add", "mul"), ("mul",), ()):
            trail = pattern.Trail(self.elements)
            value, found = result, list[Value]()
            for op in weights:
                pair = self._weighted(trail, value, op)
                if pair is None:
                    break
                value = pair[0]
                found.insert(0, pair[1])
            if len(found) < len(weights):
                continue
            raised = _group_norm(trail, value, found, result)
            if raised is None:
                raised = self._over_rows(trail, value, found, result)
            if raised is not None:
                return raised
        return None

    def _weighted(
        self, trail: pattern.Trail, value: Value, op: str
    ) -> tuple[Value, Value] | None:
        """Go through a product with, or sum of, a parameter."""
        node = value.producer
        if node is None or node.op != op:
            return None
        for inner, weight in pattern.orders(node):
            if weight in self.parameters:
                trail.step(value, op)
                return inner, weight
        return None

    def _over_rows(
        self, trail: pattern.Trail, value: Value, weights: list[Value], result: Value
    ) -> pattern.Raised | None:
        core = _core(trail, trail.through(value, pattern.CASTS))
        if core is None or core.x.type is None or core.x.type != result.type:
            return None
        shape = core.x.type.shape[core.axis :]
        if any(w.type is None or w.type.shape != shape for w in weights):
            return None
        if core.op == "rms_norm" and len(weights) > 1:
            return None
        inside = tuple(trail.inside)
        attributes: dict[str, AttrValue] = {
            "axis": core.axis - core.x.type.rank,
            "epsilon": core.epsilon,
        }
        if _is_by_hand(core, inside):
            named = dict(zip(weights, "wb", strict=False))
            attributes["spelled_out"] = pattern.calls(
                inside, _Letters(core.x, named, pattern.Trail(self.elements))
            )
        return pattern.Raised(core.op, (core.x, *weights), attributes, inside)


@attrs.frozen(eq=False)
class _Letters:
    """What stands for an operand of a norm's calls."""

    x: Value
    named: Mapping[Value, str]
    trail: pattern.Trail

    def __call__(self, value: Value) -> str | None:
        if value in self.named:
            return self.named[value]
        if self.trail.number(value) is not None or value.type is None:
            return None
        full = self.x.type is not None and value.type.shape == self.x.type.shape
        return "x" if full else "r"


def _is_by_hand(core: _Core, inside: tuple[Node, ...]) -> bool:
    if any(n.location.origin.startswith(_DECOMPOSED) for n in inside):
        return False
    single = pattern.one_call(inside)
    return core.op == "rms_norm" if single is None else not single


def _core(trail: pattern.Trail, value: Value) -> _Core | None:
    """`(x - mean) / √(variance + ε)`, or `x / √(mean of squares + ε)`."""
    for x, variance, epsilon in _quotients(trail, value):
        squares = _mean(trail, variance)
        if squares is None:
            continue
        base = _square(trail, squares[0])
        if base is None or squares[1] == 0:
            continue
        centred = _centred(trail, x)
        if centred is not None and _centred(trail, base) == centred:
            return _Core("layer_norm", centred[0], centred[1], epsilon)
        source = trail.through(x, pattern.CASTS)
        if centred is None and trail.through(base, pattern.CASTS) is source:
            return _Core("rms_norm", source, squares[1], epsilon)
    return None


def _quotients(trail: pattern.Trail, value: Value) -> list[tuple[Value, Value, float]]:
    """Numerator, radicand and epsilon of a quotient by a root, however written."""
    node = trail.step(value, "div", "mul")
    if node is None:
        return []
    pairs = [node.operands] if node.op == "div" else pattern.orders(node)
    found: list[tuple[Value, Value, float]] = []
    for over, under in pairs:
        inverse = node.op == "mul"
        radicand = _radicand(trail, under, inverse=inverse)
        epsilon = None if radicand is None else trail.by_number(radicand, "add")
        if epsilon is not None:
            found.append((over, *epsilon))
    return found


def _radicand(trail: pattern.Trail, value: Value, *, inverse: bool) -> Value | None:
    """What the root is taken of; *inverse* for one over the root."""
    power = trail.by(value, "pow", -0.5 if inverse else 0.5)
    if power is not None:
        return power
    if not inverse:
        root = trail.step(value, "sqrt")
        return None if root is None else root.operands[0]
    node = trail.step(value, "rsqrt", "reciprocal", "div")
    if node is None:
        return None
    under = node.operands[0]
    if node.op == "rsqrt":
        return under
    if node.op == "div":
        if not trail.is_number(node.operands[0], 1.0):
            return None
        under = node.operands[1]
    return _radicand(trail, under, inverse=False)


def _mean(trail: pattern.Trail, value: Value) -> tuple[Value, int] | None:
    """A mean over the last axes, which are kept: its operand and the first axis."""
    node = trail.step(value, "reduce")
    if node is None or node.attributes.text("kind") != "mean":
        return None
    x = node.operands[0]
    if x.type is None or not node.attributes.flag("keepdims") or len(node.operands) > 1:
        return None
    axes = sorted(reduced_axes(node.attributes, x.type.rank))
    first = x.type.rank - len(axes)
    return (x, first) if axes == list(range(first, x.type.rank)) else None


def _square(trail: pattern.Trail, value: Value) -> Value | None:
    base = trail.by(value, "pow", 2.0)
    if base is not None:
        return base
    node = trail.step(value, "mul", "square")
    if node is None or len(set(node.operands)) != 1:
        return None
    return node.operands[0]


def _centred(trail: pattern.Trail, value: Value) -> tuple[Value, int] | None:
    """`x - mean(x)`: x and the first axis."""
    node = trail.step(trail.through(value, pattern.CASTS), "sub")
    mean = None if node is None else _mean(trail, node.operands[1])
    if node is None or mean is None or mean[0] is not node.operands[0]:
        return None
    return mean


def _group_norm(
    trail: pattern.Trail, value: Value, weights: list[Value], result: Value
) -> pattern.Raised | None:
    """An instance norm of the groups, between reshapes, and scale and bias."""
    mark = len(trail.inside)
    outer = trail.step(value, "reshape")
    norm = None if outer is None else trail.step(outer.operands[0], "group_norm")
    inner = None if norm is None else trail.step(norm.operands[0], "reshape")
    if norm is None or inner is None or len(weights) == 1:
        del trail.inside[mark:]
        return None
    x, groups = inner.operands[0], norm.attributes.integer("groups", 0)
    inside = tuple(trail.inside)
    plain = [trail.uniform(v) for v in norm.operands[1:]] in ([], [1.0, 0.0])
    if not plain and pattern.one_call(inside) is not True:
        return None
    if x.type != result.type or not _cuts(x, norm.operands[0], groups):
        return None
    if not all(_per_channel(weight, x) for weight in weights):
        return None
    attributes: dict[str, AttrValue] = {"groups": groups}
    epsilon = norm.attributes.get("epsilon")
    if epsilon is not None:
        attributes["epsilon"] = epsilon
    return pattern.Raised("group_norm", (x, *weights), attributes, inside)


def _cuts(x: Value, cut: Value, groups: int) -> bool:
    """Whether *cut* is *x* as [batch, groups, the rest]."""
    if x.type is None or cut.type is None or x.type.rank < 2:
        return False
    shape = cut.type.shape
    return len(shape) == 3 and shape[:2] == (x.type.shape[0], groups)


def _per_channel(weight: Value, x: Value) -> bool:
    """Whether *weight* has one number per channel: [channels, 1, 1] for images."""
    if weight.type is None or x.type is None:
        return False
    behind = x.type.rank - 2
    return weight.type.shape == (x.type.shape[1], *(1,) * behind)
