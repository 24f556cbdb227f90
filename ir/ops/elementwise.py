"""Elementwise ops: one output element per (broadcast) input element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from perfc.ir.dims import Dim, Expr, ceil_div, floor_div, maximum
from perfc.ir.opdef import Abstract, InferRule, OpDef, Trait, named, names_with
from perfc.ir.ops import ratios, rules
from perfc.ir.ops.folding import (
    Fold,
    UnaryFold,
    Undecided,
    compare,
    number_of,
    power,
    product_of,
    remainder,
    truncated_remainder,
    whole_quotient,
)
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import BOOL, DType, TensorType

_TOO_LARGE = 2**63
_ATTRIBUTES = {**rules.IN_PLACE, **rules.RESULT_DTYPE}
_ELEMENTWISE = frozenset({Trait.ELEMENTWISE})
_SAME_SHAPE = _ELEMENTWISE | {Trait.KEEPS_SHAPE}


def _infer_unary(
    fold: UnaryFold | None,
    result: DType | None,
    rounding: ratios.Rounding | None = None,
) -> InferRule:
    def infer(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
        x = operands[0]
        type_ = x.type
        if result is not None:
            type_ = TensorType(result, type_.shape, type_.space)
        type_ = rules.converted(attributes, type_)
        if rounding is not None and x.ratio is not None:
            return [ratios.rounded(type_, x, rounding)]
        if fold is None or x.elements is None:
            return [Abstract(type_)]
        try:
            return [Abstract(type_, tuple(map(fold, x.elements)))]
        except Undecided:
            return [Abstract(type_)]

    return infer


def _infer_binary(fold: Fold | None, result: DType | None) -> InferRule:
    def infer(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
        shape = rules.broadcast([operand.type.shape for operand in operands])
        dtype = result or rules.promoted([operand.type for operand in operands])
        type_ = TensorType(dtype, shape, operands[0].type.space)
        type_ = rules.converted(attributes, type_)
        of_floats = None if fold is None else _OF_FLOATS.get(fold)
        if dtype.is_float and of_floats is not None:
            found = of_floats(type_, operands)
            if found.ratio is not None:
                return [found]
            return [_checked(type_, found.elements)]
        return [_checked(type_, _folded(fold, operands))]

    return infer


def _infer_clip(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    """Fold whole numbers between limits that are whole, too."""
    x = operands[0]
    type_ = rules.converted(attributes, x.type)
    low, high = attributes.get("min"), attributes.get("max")
    limits = [n for n in (low, high) if isinstance(n, float)]
    whole = bool(limits) and all(n.is_integer() for n in limits)
    if x.elements is None or not whole or attributes.flag("open"):
        return [Abstract(type_)]
    elements = x.elements
    if isinstance(low, float):
        elements = tuple(maximum(n, int(low)) for n in elements)
    if isinstance(high, float):
        elements = tuple(n + int(high) - maximum(n, int(high)) for n in elements)
    return [_checked(type_, elements)]


def _infer_prelu(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    """Slopes broadcast to x, or are a list of one for each channel."""
    x, slope = operands[0].type, operands[1].type
    if slope.rank != 1 or slope.shape != x.shape[1:2]:
        rules.broadcast([x.shape, slope.shape])
    return [Abstract(rules.converted(attributes, x))]


def _folded(fold: Fold | None, operands: Sequence[Abstract]) -> tuple[Dim, ...] | None:
    """Fold two operands of equal length, or a single element against many."""
    if fold is None or len(operands) != 2:
        return None
    left, right = operands[0].elements, operands[1].elements
    if left is None or right is None or max(len(left), len(right)) > rules.MAX_ELEMENTS:
        return None
    if len(left) != len(right):
        if len(left) != 1 and len(right) != 1:
            return None
        left, right = left * len(right), right * len(left)
    try:
        return tuple(map(fold, left, right))
    except (ZeroDivisionError, VerifyError, Undecided):
        return None


def _checked(type_: TensorType, elements: tuple[Dim, ...] | None) -> Abstract:
    """Drop elements that leave 64 bits, or that were broadcast in two directions."""
    if elements is None or len(elements) != type_.numel:
        return Abstract(type_)
    if any(isinstance(e, int) and abs(e) >= _TOO_LARGE for e in elements):
        return Abstract(type_)
    return Abstract(type_, elements)


_OF_FLOATS: Mapping[Fold, Callable[[TensorType, Sequence[Abstract]], Abstract]] = {
    whole_quotient: ratios.quotient,
    product_of: ratios.scaled,
}
"""Folds of floats, which may leave no whole numbers."""


def _unary(
    name: str,
    flops: int,
    summary: str,
    fold: UnaryFold | None = None,
    result: DType | None = None,
) -> OpDef:
    return OpDef(
        name=name,
        arity=(1, 1),
        infer=_infer_unary(fold, result),
        work=rules.per_result(flops),
        attributes=_ATTRIBUTES,
        traits=_SAME_SHAPE,
        summary=summary,
    )


def _rounding(name: str, rounding: ratios.Rounding, summary: str) -> OpDef:
    rule = _infer_unary(_same, None, rounding)
    return attrs.evolve(_unary(name, 1, summary), infer=rule)


def _binary(
    name: str, flops: int, fold: Fold | None, result: DType | None, summary: str
) -> OpDef:
    return OpDef(
        name=name,
        arity=(2, 2),
        infer=_infer_binary(fold, result),
        work=rules.per_result(flops),
        attributes=_ATTRIBUTES,
        traits=_ELEMENTWISE,
        summary=summary,
    )


def _commutative(
    name: str, flops: int, fold: Fold | None, result: DType | None, summary: str
) -> OpDef:
    made = _binary(name, flops, fold, result, summary)
    return attrs.evolve(made, traits=made.traits | {Trait.COMMUTATIVE})


def _ternary(name: str, flops: int, summary: str) -> OpDef:
    return OpDef(
        name=name,
        arity=(3, 3),
        infer=_infer_binary(None, None),
        work=rules.per_result(flops),
        attributes=_ATTRIBUTES,
        traits=_ELEMENTWISE,
        summary=summary,
    )


def _same(x: Dim) -> Dim:
    return x


# Flops per element: 1 for what is one instruction; for the others the number of
# arithmetic instructions of the usual fp32 device routines, rounded.
_UNARY = (
    _unary("relu", 1, "max(x, 0)", lambda x: max(number_of(x), 0)),
    _unary("leaky_relu", 2, "x, or a share of it where it is negative"),
    _unary("thresholded_relu", 1, "x where it is above a threshold, else 0"),
    attrs.evolve(
        _unary("shrink", 2, "x moved towards 0, and 0 near it; hard: not moved"),
        attributes={"hard": rules.OPTIONAL_BOOL, **_ATTRIBUTES},
    ),
    _unary("elu", 5, "x, or exp(x) - 1 where it is negative"),
    _unary("celu", 6, "elu with a rate inside the exponential"),
    _unary("selu", 6, "elu, scaled"),
    attrs.evolve(
        _unary("hardsigmoid", 3, "a x + b limited to [0, 1]"),
        attributes={
            "alpha": rules.OPTIONAL_FLOAT,
            "beta": rules.OPTIONAL_FLOAT,
            **_ATTRIBUTES,
        },
    ),
    _unary("sigmoid", 4, "1 / (1 + exp(-x))"),
    _unary("softplus", 6, "log(1 + exp(x))"),
    _unary("softsign", 4, "x / (1 + |x|)"),
    _unary("tanh", 8, "hyperbolic tangent"),
    _unary("erf", 8, "error function"),
    _unary("exp", 3, "exponential"),
    _unary("log", 3, "natural logarithm"),
    _unary("log2", 3, "logarithm to base 2"),
    _unary("log10", 4, "logarithm to base 10"),
    _unary("log1p", 4, "log(1 + x)"),
    _unary("exp2", 3, "2 to the power x"),
    _unary("expm1", 4, "exp(x) - 1"),
    _unary("rsqrt", 2, "1 / sqrt(x)"),
    _unary("erfc", 8, "1 - erf(x)"),
    _unary("erfinv", 12, "inverse of erf"),
    _unary("i0e", 16, "exp(-|x|) times the Bessel function i0"),
    _unary("lgamma", 20, "logarithm of the absolute value of the gamma function"),
    _unary("digamma", 20, "derivative of lgamma"),
    _unary("polygamma", 20, "derivatives of digamma"),
    _unary("i0", 20, "modified Bessel function of order 0"),
    _unary("sinc", 10, "sin(pi x) / (pi x), 1 at 0"),
    _unary("nan_to_num", 3, "x, and numbers where it is none or infinite"),
    _unary("signbit", 1, "whether each element is negative", None, BOOL),
    _unary("logit", 5, "log(x / (1 - x))"),
    _unary("log_sigmoid", 6, "log(sigmoid(x))"),
    _unary("sqrt", 2, "square root"),
    _unary("reciprocal", 2, "1 / x"),
    _unary("sin", 8, "sine"),
    _unary("cos", 8, "cosine"),
    _unary("tan", 12, "tangent"),
    _unary("asin", 12, "inverse sine"),
    _unary("acos", 12, "inverse cosine"),
    _unary("atan", 12, "inverse tangent"),
    _unary("sinh", 8, "hyperbolic sine"),
    _unary("cosh", 8, "hyperbolic cosine"),
    _unary("asinh", 12, "inverse hyperbolic sine"),
    _unary("acosh", 12, "inverse hyperbolic cosine"),
    _unary("atanh", 12, "inverse hyperbolic tangent"),
    _unary("square", 1, "x * x"),
    _unary("neg", 1, "-x", lambda x: -x),
    _unary("abs", 1, "absolute value", lambda x: abs(number_of(x))),
    _unary("sign", 2, "-1, 0 or 1", lambda x: (number_of(x) > 0) - (number_of(x) < 0)),
    _rounding("ceil", ceil_div, "x rounded up"),
    _rounding("floor", floor_div, "x rounded down"),
    _rounding("round", ratios.nearest, "x rounded to the nearest, halves to even"),
    _rounding("trunc", ratios.truncated, "x rounded towards 0"),
    _unary("frac", 2, "x without what is before the point"),
    OpDef(
        name="clip",
        arity=(1, 1),
        infer=_infer_clip,
        work=rules.per_result(2),
        attributes={
            "min": rules.OPTIONAL_FLOAT,
            "max": rules.OPTIONAL_FLOAT,
            "open": rules.OPTIONAL_BOOL,  # there is a limit that is not noted
            **_ATTRIBUTES,
        },
        traits=_SAME_SHAPE,
        summary="x limited to a range",
    ),
    _unary("bitwise_not", 1, "each bit negated"),
    _unary("isnan", 1, "whether each element is not a number", None, BOOL),
    _unary("isinf", 1, "whether each element is infinite", None, BOOL),
    _unary("isfinite", 1, "whether each element is a finite number", None, BOOL),
    _unary("not", 1, "logical negation", lambda x: 1 - number_of(x), BOOL),
)

_BINARY = (
    _commutative("add", 1, lambda a, b: a + b, None, "x + y"),
    _binary("sub", 1, lambda a, b: a - b, None, "x - y"),
    _commutative("mul", 1, product_of, None, "x * y"),
    _binary("div", 1, whole_quotient, None, "x / y"),
    _binary("pow", 4, power, None, "x to the power y"),
    _commutative("maximum", 1, maximum, None, "the larger of x and y"),
    _commutative("minimum", 1, lambda a, b: a + b - maximum(a, b), None, "the smaller"),
    _binary("mod", 2, remainder, None, "remainder of x / y"),
    _binary(
        "fmod", 2, truncated_remainder, None, "remainder of x / y, with the sign of x"
    ),
    _binary("floor_divide", 2, None, None, "x / y rounded down"),
    _binary("atan2", 14, None, None, "angle of the point (y, x)"),
    _commutative("hypot", 5, None, None, "sqrt(x * x + y * y)"),
    _binary("copysign", 1, None, None, "x with the sign of y"),
    _commutative("logaddexp", 10, None, None, "log(exp(x) + exp(y))"),
    _binary("xlogy", 4, None, None, "x * log(y), 0 where x is 0"),
    OpDef(
        name="prelu",
        arity=(2, 2),
        infer=_infer_prelu,
        work=rules.per_result(2),
        attributes=_ATTRIBUTES,
        traits=_ELEMENTWISE,
        summary="x, or y times it where it is negative",
    ),
    _binary("bit_shift", 1, None, None, "the bits of x moved by y places"),
    _commutative("bitwise_and", 1, None, None, "the bits that both have"),
    _commutative("bitwise_or", 1, None, None, "the bits that one of both has"),
    _commutative("bitwise_xor", 1, None, None, "the bits that differ"),
    _commutative("equal", 1, compare(lambda d: d == 0), BOOL, "x == y"),
    _commutative("not_equal", 1, compare(lambda d: d != 0), BOOL, "x != y"),
    _binary("less", 1, compare(lambda d: d < 0), BOOL, "x < y"),
    _binary("less_equal", 1, compare(lambda d: d <= 0), BOOL, "x <= y"),
    _binary("greater", 1, compare(lambda d: d > 0), BOOL, "x > y"),
    _binary("greater_equal", 1, compare(lambda d: d >= 0), BOOL, "x >= y"),
    _commutative("and", 1, lambda a, b: a * b, BOOL, "logical and"),
    _commutative("or", 1, maximum, BOOL, "logical or"),
    _commutative("xor", 1, compare(lambda d: d != 0), BOOL, "logical exclusive or"),
)


def _infer_where(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    shape = rules.broadcast([operand.type.shape for operand in operands])
    condition, left, right = (operand.elements for operand in operands)
    wide = rules.promoted([operand.type for operand in operands[1:]])
    type_ = rules.converted(attributes, TensorType(wide, shape))
    if condition is None or left is None or right is None:
        return [Abstract(type_)]
    size = max(len(condition), len(left), len(right))
    fits = all(len(e) in {1, size} for e in (condition, left, right))
    if not fits or any(isinstance(c, Expr) for c in condition):
        return [Abstract(type_)]
    chosen = (
        left[i % len(left)] if condition[i % len(condition)] else right[i % len(right)]
        for i in range(size)
    )
    return [_checked(type_, tuple(chosen))]


WHERE = OpDef(
    name="where",
    arity=(3, 3),
    infer=_infer_where,
    work=rules.per_result(1),
    attributes=_ATTRIBUTES,
    traits=_ELEMENTWISE,
    summary="x where the condition holds, else y",
)
_TERNARY = (
    _ternary("addcmul", 3, "x + a * y * z, with a number a"),
    _ternary("addcdiv", 3, "x + a * y / z, with a number a"),
    _ternary("lerp", 3, "x + w * (y - x)"),
)
MASKED_FILL = OpDef(
    name="masked_fill",
    arity=(3, 3),
    infer=rules.first_operand,
    work=rules.per_result(1),
    attributes=rules.IN_PLACE,
    traits=_SAME_SHAPE,
    summary="x, mask, value: the value where the mask holds, else x",
)

OPS = named(*_UNARY, *_BINARY, *_TERNARY, WHERE, MASKED_FILL)
ELEMENTWISE_OPS = names_with(Trait.ELEMENTWISE, OPS)
"""Names of the elementwise ops."""
