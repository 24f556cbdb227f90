"""Gradients of elementwise ops, kernel by kernel as ATen computes them.

The formulas are those of PyTorch's `tools/autograd/derivatives.yaml` and of the
functions that it calls, in their order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

from perfc.ir import Value, node_kinds
from perfc.passes import graphs
from perfc.passes.autodiff.reverse_mode import Gradients, Rule, Site

_CLAMP = "aten.clamp"


def _of_result(op: str) -> Rule:
    """Apply a backward op that reads the result."""
    return lambda site: {0: site.op(op, site.grad, site.out)}


def _of_input(op: str, *names: str) -> Rule:
    """Apply a backward op that reads the input, and shares attributes."""
    return lambda site: {0: site.op(op, site.grad, site.x, **site.kept(*names))}


def _pass(site: Site) -> Gradients:
    return {0: site.grad}


def _zeros(site: Site) -> Gradients:
    """Write zeros: what is flat, as rounding, has no slope."""
    return {0: site.tape.full(graphs.typed(site.x), 0.0)}


def _leaky_relu(site: Site) -> Gradients:
    return {0: site.op("leaky_relu_backward", site.grad, site.x)}


def _clip(site: Site) -> Gradients:
    """Apply `hardtanh_backward`; `clamp` masks the gradient call by call."""
    x, limits = site.x, site.kept("min", "max")
    if _CLAMP not in site.node.location.origin:
        return {0: site.op("clip_backward", site.grad, x, **limits)}
    masks: list[Value] = []
    for name, op in (("min", "greater_equal"), ("max", "less_equal")):
        limit = limits.get(name)
        if isinstance(limit, float):
            masks.append(site.by(op, x, limit))
    inside = masks[0]
    if len(masks) > 1:
        inside = site.op("and", *masks, in_place=True)
    return {0: _masked(site, inside, site.grad, keep=True)}


def _masked(site: Site, mask: Value, grad: Value, *, keep: bool) -> Value:
    """Select the gradient where *mask* holds, or where it does not; 0 elsewhere."""
    zero = site.tape.full(attrs.evolve(graphs.typed(grad), shape=()), 0.0)
    return site.op("where", mask, *((grad, zero) if keep else (zero, grad)))


def _exp(site: Site) -> Gradients:
    return {0: site.op("mul", site.grad, site.out)}


def _log(site: Site) -> Gradients:
    return {0: site.op("div", site.grad, site.x)}


def _sqrt(site: Site) -> Gradients:
    return {0: site.op("div", site.grad, site.by("mul", site.out, 2.0))}


def _reciprocal(site: Site) -> Gradients:
    square = site.op("mul", site.out, site.out)
    return {0: site.op("mul", site.op("neg", site.grad), square)}


def _sin(site: Site) -> Gradients:
    return {0: site.op("mul", site.grad, site.op("cos", site.x))}


def _cos(site: Site) -> Gradients:
    slope = site.op("neg", site.op("sin", site.x))
    return {0: site.op("mul", site.grad, slope)}


def _tan(site: Site) -> Gradients:
    slope = site.by("add", site.by("pow", site.out, 2.0), 1.0)
    return {0: site.op("mul", site.grad, slope)}


def _sinh(site: Site) -> Gradients:
    return {0: site.op("mul", site.grad, site.op("cosh", site.x))}


def _cosh(site: Site) -> Gradients:
    return {0: site.op("mul", site.grad, site.op("sinh", site.x))}


def _inverse(added: float, square_sign: float = 1.0) -> Rule:
    """Divide by the root of a number and ±x²: arc functions."""
    return lambda site: {0: _root_of(site, added, square_sign)}


def _root_of(site: Site, added: float, square_sign: float) -> Value:
    factor = site.x if square_sign > 0 else site.op("neg", site.x)
    square = site.op("mul", factor, site.x)
    inside = site.by("add", square, added)
    return site.op("mul", site.grad, site.op("rsqrt", inside))


def _acos(site: Site) -> Gradients:
    return {0: site.op("neg", _root_of(site, 1.0, -1.0))}


def _atan(site: Site) -> Gradients:
    square = site.op("mul", site.x, site.x)
    return {0: site.op("div", site.grad, site.by("add", square, 1.0))}


def _erf(site: Site) -> Gradients:
    power = site.op("exp", site.op("neg", site.by("pow", site.x, 2.0)))
    slope = site.by("mul", power, 2 / math.sqrt(math.pi))
    return {0: site.op("mul", slope, site.grad)}


def _square(site: Site) -> Gradients:
    """`torch.square` is a power with the exponent 2."""
    slope = site.by("mul", site.by("pow", site.x, 1.0), 2.0)
    return {0: site.op("mul", site.grad, slope)}


def _abs(site: Site) -> Gradients:
    return {0: site.op("mul", site.grad, site.op("sign", site.x))}


def _softsign(site: Site) -> Gradients:
    """The quotient of x by 1 + |x|, taken apart."""
    below = site.by("add", site.op("abs", site.x), 1.0)
    return {0: site.op("div", site.grad, site.op("mul", below, below))}


def _sub(site: Site) -> Gradients:
    found = {0: site.grad}
    if 1 in site.wanted:
        found[1] = site.op("neg", site.grad)
    return found


def _add(site: Site) -> Gradients:
    return {0: site.grad, 1: site.grad}


def _mul(site: Site) -> Gradients:
    found: dict[int, Value] = {}
    for index, other in ((0, site.y), (1, site.x)):
        if index in site.wanted:
            found[index] = site.op("mul", site.grad, other)
    return found


def _div(site: Site) -> Gradients:
    found: dict[int, Value] = {}
    if 1 in site.wanted:
        twice = site.op("div", site.op("div", site.x, site.y), site.y)
        found[1] = site.op("mul", site.op("neg", site.grad), twice)
    if 0 in site.wanted:
        found[0] = site.op("div", site.grad, site.y)
    return found


def _pow(site: Site) -> Gradients:
    """Return gradients of a power.

    An exponent that is a tensor may be 0 (`pow_backward_self`).
    """
    found: dict[int, Value] = {}
    if 0 in site.wanted:
        less = _less_one(site, site.y)
        slope = site.op("mul", site.op("pow", site.x, less), site.y)
        found[0] = site.op("mul", site.grad, slope)
        if graphs.typed(site.y).rank:
            none = site.by("equal", site.y, 0.0)
            found[0] = _masked(site, none, found[0], keep=False)
    if 1 in site.wanted:
        none = site.by("equal", site.x, 0.0)
        none = site.op("and", none, site.by("greater_equal", site.y, 0.0))
        rate = site.op("mul", site.out, site.op("log", site.x))
        rate = site.op("mul", site.grad, rate)
        found[1] = _masked(site, none, rate, keep=False)
    return found


def _less_one(site: Site, exponent: Value) -> Value:
    """Return an exponent less 1; numbers are reckoned with before running."""
    node = exponent.producer
    number = None
    if node is not None and node_kinds.is_constant(node):
        number = node.attributes.get("value")
        elements = site.tape.inference.elements.get(exponent)
        if number is None and elements and len(elements) == 1:
            number = elements[0]
    if isinstance(number, int | float):
        return site.tape.number(site.x, number - 1.0)
    return site.by("sub", exponent, 1.0)


def _extremum(strict: str) -> Rule:
    """Halve the gradient where both are equal; none where the other one wins."""

    def rule(site: Site) -> Gradients:
        found: dict[int, Value] = {}
        for index, loses in ((0, strict), (1, _REVERSED[strict])):
            if index not in site.wanted:
                continue
            half = site.by("div", site.grad, 2.0)
            tie = site.op("equal", site.x, site.y)
            shared = site.op("where", tie, half, site.grad)
            lost = site.op(loses, site.x, site.y)
            zero = site.tape.number(shared, 0.0)
            found[index] = site.op("masked_fill", shared, lost, zero, in_place=True)
        return found

    return rule


_REVERSED = {"less": "greater", "greater": "less"}


def _where(site: Site) -> Gradients:
    condition = site.x
    found: dict[int, Value] = {}
    for index in (2, 1):
        if index in site.wanted:
            found[index] = _masked(site, condition, site.grad, keep=index == 1)
    return found


def _cast(site: Site) -> Gradients:
    """Cast back; what was no cast is none now."""
    x = graphs.typed(site.x)
    if graphs.typed(site.grad).dtype == x.dtype:
        return {0: site.grad}
    stream = site.node.attributes.text("stream", "")
    aside = {"stream": graphs.gradient_stream(stream)} if stream else {}
    return {0: site.op("cast", site.grad, dtype=x.dtype, **aside)}


def _dropout(site: Site) -> Gradients:
    if len(site.node.results) < 2:  # no mask: it dropped nothing
        return {0: site.grad}
    return {0: site.op("dropout_backward", site.grad, site.node.results[1])}


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("identity", "copy"), _pass),
    **dict.fromkeys(("sign", "ceil", "floor", "round"), _zeros),
    **{name: _of_result(f"{name}_backward") for name in ("relu", "sigmoid", "tanh")},
    "leaky_relu": _leaky_relu,
    "gelu": _of_input("gelu_backward", "approximate"),
    **{
        name: _of_input(f"{name}_backward")
        for name in ("hardsigmoid", "softplus", "silu", "hardswish", "mish")
    },
    "clip": _clip,
    "exp": _exp,
    "log": _log,
    "sqrt": _sqrt,
    "reciprocal": _reciprocal,
    "sin": _sin,
    "cos": _cos,
    "tan": _tan,
    "sinh": _sinh,
    "cosh": _cosh,
    "asin": _inverse(1.0, -1.0),
    "acos": _acos,
    "atan": _atan,
    "acosh": _inverse(-1.0),
    "erf": _erf,
    "square": _square,
    "neg": lambda site: {0: site.op("neg", site.grad)},
    "abs": _abs,
    "softsign": _softsign,
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "maximum": _extremum("less"),
    "minimum": _extremum("greater"),
    "where": _where,
    **dict.fromkeys(("cast", "cast_like"), _cast),
    "dropout": _dropout,
}
"""Rules of elementwise ops by name."""
