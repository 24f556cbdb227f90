"""Gradients of functions beyond arithmetic, and of ops of several tensors.

The formulas are those of PyTorch's `tools/autograd/derivatives.yaml`, kernel by kernel
in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import attrs

from perfc.ir import Value
from perfc.passes import graphs
from perfc.passes.autodiff.reverse_mode import Gradients, Rule, Site


def _zeros(site: Site) -> Gradients:
    """Write zeros: what is flat has no slope."""
    return {0: site.tape.full(graphs.typed(site.x), 0.0)}


def _pass(site: Site) -> Gradients:
    return {0: site.grad}


def _exp2(site: Site) -> Gradients:
    return {0: site.by("mul", site.op("mul", site.grad, site.out), math.log(2))}


def _expm1(site: Site) -> Gradients:
    return {0: site.op("mul", site.grad, site.by("add", site.out, 1.0))}


def _log_to(base: float) -> Rule:
    """Divide by the argument times the logarithm of the base."""

    def rule(site: Site) -> Gradients:
        scaled = site.by("mul", site.x, math.log(base))
        return {0: site.op("div", site.grad, scaled)}

    return rule


def _log1p(site: Site) -> Gradients:
    return {0: site.op("div", site.grad, site.by("add", site.x, 1.0))}


def _rsqrt(site: Site) -> Gradients:
    half = site.by("mul", site.grad, -0.5)
    return {0: site.op("mul", half, site.by("pow", site.out, 3.0))}


def _erfc(site: Site) -> Gradients:
    power = site.op("exp", site.op("neg", site.by("pow", site.x, 2.0)))
    slope = site.by("mul", power, -2 / math.sqrt(math.pi))
    return {0: site.op("mul", slope, site.grad)}


def _erfinv(site: Site) -> Gradients:
    power = site.op("exp", site.by("pow", site.op("erfinv", site.x), 2.0))
    slope = site.by("mul", power, math.sqrt(math.pi) / 2)
    return {0: site.op("mul", slope, site.grad)}


def _of(function: str) -> Rule:
    """Multiply by another function of the input."""
    return lambda site: {0: site.op("mul", site.grad, site.op(function, site.x))}


def _sinc(site: Site) -> Gradients:
    """`sinc_backward` of `FunctionsManual.cpp`."""
    angle = site.by("mul", site.x, math.pi)
    square = site.by("mul", site.op("mul", site.x, site.x), math.pi)
    turned = site.op("mul", angle, site.op("cos", angle))
    slope = site.op("div", site.op("sub", turned, site.op("sin", angle)), square)
    found = site.op("mul", site.grad, slope)
    zero = site.tape.full(attrs.evolve(graphs.typed(found), shape=()), 0.0)
    return {0: site.op("where", site.by("equal", square, 0.0), zero, found)}


def _backward(*names: str, **fixed: float) -> Rule:
    """Apply the op's own backward op, which reads the input, and shares attributes."""
    return lambda site: {
        0: site.op(
            f"{site.node.op}_backward",
            site.grad,
            site.x,
            **fixed,
            **site.kept(*names),
        )
    }


def _elu_like(scale: float, alpha: float) -> Rule:
    """CELU and SELU are an ELU to autograd."""
    return lambda site: {
        0: site.op("elu_backward", site.grad, site.x, alpha=alpha, scale=scale)
    }


def _threshold(site: Site) -> Gradients:
    """`threshold_backward`: what the threshold lets through is positive here."""
    return {0: site.op("relu_backward", site.grad, site.out)}


def _prelu(site: Site) -> Gradients:
    """One kernel writes both; slopes are repeated, so theirs is added up."""
    found = site.tape.ops("prelu_backward", 2, site.grad, site.x, site.y)
    return dict(enumerate(found))


def _atanh(site: Site) -> Gradients:
    ones = site.tape.full(graphs.typed(site.x), 1.0)
    below = site.op("sub", ones, site.by("pow", site.x, 2.0), in_place=True)
    return {0: site.op("div", site.grad, below)}


def _asinh(site: Site) -> Gradients:
    inside = site.by("add", site.by("pow", site.x, 2.0), 1.0)
    return {0: site.op("mul", site.grad, site.op("rsqrt", inside))}


def _remainder(whole_quotient: Callable[[Site], Value], site: Site) -> Gradients:
    """What is cut off is a whole number times the divisor."""
    found = {0: site.grad}
    if 1 in site.wanted:
        whole = whole_quotient(site)
        found[1] = site.op("mul", site.op("neg", site.grad), whole)
    return found


def _floored_quotient(site: Site) -> Value:
    return site.op("floor_divide", site.x, site.y)


def _truncated_quotient(site: Site) -> Value:
    return site.op("trunc", site.op("div", site.x, site.y))


def _atan2(site: Site) -> Gradients:
    """`atan2_backward`."""
    squares = [site.op("mul", value, value) for value in (site.x, site.y)]
    total = site.op("add", *squares)
    rate, zero = site.op("reciprocal", total), site.tape.number(total, 0.0)
    rate = site.op("masked_fill", rate, site.by("equal", total, 0.0), zero)
    found: dict[int, Value] = {}
    if 0 in site.wanted:
        found[0] = site.op("mul", site.op("mul", site.grad, site.y), rate)
    if 1 in site.wanted:
        less = site.op("neg", site.x)
        found[1] = site.op("mul", site.op("mul", site.grad, less), rate)
    return found


def _hypot(site: Site) -> Gradients:
    return {
        index: site.op("mul", site.grad, site.op("div", side, site.out))
        for index, side in enumerate((site.x, site.y))
        if index in site.wanted
    }


def _copysign(site: Site) -> Gradients:
    """`copysign_tensor_self_backward`; the sign itself has no slope."""
    found: dict[int, Value] = {}
    if 0 in site.wanted:
        ratio = site.op("div", site.out, site.x)
        none = site.by("equal", site.x, 0.0)
        zero = site.tape.number(ratio, 0.0)
        ratio = site.op("masked_fill", ratio, none, zero, in_place=True)
        found[0] = site.op("mul", site.grad, ratio)
    if 1 in site.wanted:
        found[1] = site.tape.full(graphs.typed(site.y), 0.0)
    return found


def _logaddexp(site: Site) -> Gradients:
    found: dict[int, Value] = {}
    for index, (one, other) in enumerate(((site.x, site.y), (site.y, site.x))):
        if index in site.wanted:
            odds = site.by("add", site.op("exp", site.op("sub", other, one)), 1.0)
            found[index] = site.op("div", site.grad, odds)
    return found


def _xlogy(site: Site) -> Gradients:
    found: dict[int, Value] = {}
    if 0 in site.wanted:
        none = site.by("equal", site.x, 0.0)
        low = site.by("less_equal", site.y, 0.0)
        rate = site.op("xlogy", site.grad, site.y)
        zero = site.tape.number(rate, 0.0)
        found[0] = site.op("masked_fill", rate, site.op("bitwise_and", none, low), zero)
    if 1 in site.wanted:
        found[1] = site.op("div", site.op("mul", site.grad, site.x), site.y)
    return found


def _addcmul(site: Site) -> Gradients:
    """The number is 1 here: it costs as much as any."""
    _, one, other = site.node.operands
    found = {0: site.grad}
    for index, factor in ((1, other), (2, one)):
        if index in site.wanted:
            found[index] = site.op("mul", site.grad, site.by("mul", factor, 1.0))
    return found


def _addcdiv(site: Site) -> Gradients:
    _, one, other = site.node.operands
    found = {0: site.grad}
    if 1 in site.wanted:
        one_of = site.tape.full(graphs.typed(other), 1.0)
        rate = site.op("div", one_of, other, in_place=True)
        found[1] = site.op("mul", site.grad, rate)
    if 2 in site.wanted:  # x, y, z
        rate = site.op("div", site.by("mul", one, 1.0), site.op("mul", other, other))
        found[2] = site.op("mul", site.op("neg", site.grad), rate)
    return found


def _lerp(site: Site) -> Gradients:
    start, end, weight = site.node.operands
    found: dict[int, Value] = {}
    if 0 in site.wanted:
        ones = site.tape.full(graphs.typed(weight), 1.0)
        rest = site.op("sub", ones, weight, in_place=True)
        found[0] = site.op("mul", site.grad, rest)
    if 1 in site.wanted:
        found[1] = site.op("mul", site.grad, weight)
    if 2 in site.wanted:  # start, end, weight
        found[2] = site.op("mul", site.grad, site.op("sub", end, start))
    return found


def _masked_fill(site: Site) -> Gradients:
    mask = site.y
    zero = site.tape.number(site.grad, 0.0)
    found: dict[int, Value] = {}
    if 0 in site.wanted:
        found[0] = site.op("masked_fill", site.grad, mask, zero)
    if 2 in site.wanted:  # x, mask, value
        found[2] = site.op("where", mask, site.grad, zero)
    return found


def _nan_to_num(site: Site) -> Gradients:
    return {0: site.op("mul", site.grad, site.op("isfinite", site.x))}


_SELU = (1.0507009873554804934193349852946, 1.6732632423543772848170429916717)
"""Scale and alpha (Klambauer et al., "Self-Normalizing Neural Networks", 2017)."""

RULES: Mapping[str, Rule] = {
    "trunc": _zeros,
    "frac": _pass,
    "exp2": _exp2,
    "expm1": _expm1,
    "log2": _log_to(2),
    "log10": _log_to(10),
    "log1p": _log1p,
    "rsqrt": _rsqrt,
    "erfc": _erfc,
    "erfinv": _erfinv,
    "lgamma": _of("digamma"),
    "digamma": _of("polygamma"),
    "sinc": _sinc,
    "nan_to_num": _nan_to_num,
    "elu": _backward(),
    "celu": _elu_like(1.0, 1.0),
    "selu": _elu_like(*_SELU),
    "shrink": _backward("hard"),
    "logit": _backward(),
    "log_sigmoid": _backward(),
    "thresholded_relu": _threshold,
    "glu": _backward("axis"),
    "prelu": _prelu,
    "atanh": _atanh,
    "asinh": _asinh,
    "fmod": partial(_remainder, _truncated_quotient),
    "mod": partial(_remainder, _floored_quotient),
    "atan2": _atan2,
    "hypot": _hypot,
    "copysign": _copysign,
    "logaddexp": _logaddexp,
    "xlogy": _xlogy,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "lerp": _lerp,
    "masked_fill": _masked_fill,
}
"""Rules of these ops by name."""
