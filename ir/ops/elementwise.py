"""Elementwise ops: one output element per (broadcast) input element."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfc.ir.dims import Dim, Expr
from perfc.ir.errors import VerifyError
from perfc.ir.launch import Work
from perfc.ir.opdef import Abstract, InferRule, OpDef, WorkRule
from perfc.ir.ops.rules import MAX_ELEMENTS, broadcast, first_operand, touch_all
from perfc.ir.record import Record
from perfc.ir.types import BOOL, DType, TensorType

_TOO_LARGE = 2**63
_Fold = Callable[[Dim, Dim], Dim]


def _work(flops_per_element: int) -> WorkRule:
    def work(
        attributes: Record,
        operands: Sequence[TensorType],
        results: Sequence[TensorType],
    ) -> Work:
        moved = touch_all(attributes, operands, results)
        flops = flops_per_element * results[0].numel
        return Work(flops, moved.bytes_read, moved.bytes_written)

    return work


def _infer(fold: _Fold | None, result: DType | None) -> InferRule:
    def infer(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
        shape = broadcast([operand.type.shape for operand in operands])
        dtype = result or operands[0].type.dtype
        type_ = TensorType(dtype, shape, operands[0].type.space)
        return [_checked(type_, _folded(fold, operands))]

    return infer


def _folded(fold: _Fold | None, operands: Sequence[Abstract]) -> tuple[Dim, ...] | None:
    """Fold two operands of equal length, or a single element against many."""
    if fold is None or len(operands) != 2:  # noqa: PLR2004 - a binary op
        return None
    left, right = operands[0].elements, operands[1].elements
    if left is None or right is None or max(len(left), len(right)) > MAX_ELEMENTS:
        return None
    if len(left) != len(right):
        if len(left) != 1 and len(right) != 1:
            return None
        left, right = left * len(right), right * len(left)
    try:
        return tuple(map(fold, left, right))
    except (ZeroDivisionError, VerifyError, _Undecided):
        return None


def _checked(type_: TensorType, elements: tuple[Dim, ...] | None) -> Abstract:
    """Drop elements that leave 64 bits, or that were broadcast in two directions."""
    if elements is None or len(elements) != type_.numel:
        return Abstract(type_)
    if any(isinstance(e, int) and abs(e) >= _TOO_LARGE for e in elements):
        return Abstract(type_)
    return Abstract(type_, elements)


class _Undecided(Exception):  # noqa: N818 - never leaves this module
    """A comparison of symbols has no answer yet."""


def _compare(test: Callable[[int], bool]) -> _Fold:
    def fold(left: Dim, right: Dim) -> Dim:
        difference = left - right
        if isinstance(difference, Expr):
            raise _Undecided
        return int(test(difference))

    return fold


def _unary(name: str, flops: int, summary: str) -> OpDef:
    return OpDef(
        name=name, arity=(1, 1), infer=first_operand, work=_work(flops), summary=summary
    )


def _infer_not(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    x = operands[0]
    numbers = [e for e in x.elements or () if isinstance(e, int)]
    known = x.elements is not None and len(numbers) == len(x.elements)
    elements = tuple(int(not e) for e in numbers) if known else None
    return [Abstract(TensorType(BOOL, x.type.shape, x.type.space), elements)]


def _predicate(name: str, infer: InferRule, summary: str) -> OpDef:
    return OpDef(
        name=name,
        arity=(1, 1),
        infer=infer,
        work=_work(1),
        summary=summary,
    )


def _binary(
    name: str, flops: int, fold: _Fold | None, result: DType | None, summary: str
) -> OpDef:
    return OpDef(
        name=name,
        arity=(2, 2),
        infer=_infer(fold, result),
        work=_work(flops),
        summary=summary,
    )


# Flops per element: 1 for what is one instruction; for the others the number of
# arithmetic instructions of the usual fp32 device routines, rounded.
_UNARY = (
    _unary("relu", 1, "max(x, 0)"),
    _unary("sigmoid", 4, "1 / (1 + exp(-x))"),
    _unary("tanh", 8, "hyperbolic tangent"),
    _unary("gelu", 10, "Gaussian error linear unit, exact or tanh"),
    _unary("silu", 5, "x * sigmoid(x)"),
    _unary("erf", 8, "error function"),
    _unary("exp", 3, "exponential"),
    _unary("log", 3, "natural logarithm"),
    _unary("sqrt", 2, "square root"),
    _unary("reciprocal", 2, "1 / x"),
    _unary("neg", 1, "-x"),
    _unary("abs", 1, "absolute value"),
    _unary("clip", 2, "x limited to a range"),
    _predicate("isnan", _infer(None, BOOL), "whether each element is not a number"),
    _predicate("not", _infer_not, "logical negation"),
)

_BINARY = (
    _binary("add", 1, lambda a, b: a + b, None, "x + y"),
    _binary("sub", 1, lambda a, b: a - b, None, "x - y"),
    _binary("mul", 1, lambda a, b: a * b, None, "x * y"),
    _binary("div", 1, lambda a, b: a // b, None, "x / y"),
    _binary("pow", 4, None, None, "x to the power y"),
    _binary("maximum", 1, None, None, "the larger of x and y"),
    _binary("minimum", 1, None, None, "the smaller of x and y"),
    _binary("mod", 2, None, None, "remainder of x / y"),
    _binary("equal", 1, _compare(lambda d: d == 0), BOOL, "x == y"),
    _binary("less", 1, _compare(lambda d: d < 0), BOOL, "x < y"),
    _binary("greater", 1, _compare(lambda d: d > 0), BOOL, "x > y"),
    _binary("and", 1, lambda a, b: a * b, BOOL, "logical and"),
    _binary("or", 1, lambda a, b: a + b - a * b, BOOL, "logical or"),
)


def _infer_where(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    shape = broadcast([operand.type.shape for operand in operands])
    condition, left, right = (operand.elements for operand in operands)
    type_ = TensorType(operands[1].type.dtype, shape)
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
    work=_work(1),
    summary="x where the condition holds, else y",
)

OPS = (*_UNARY, *_BINARY, WHERE)
KINDS = frozenset(op.name for op in OPS)
"""Names of the elementwise ops."""
