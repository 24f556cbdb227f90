"""Floats of shape arithmetic that are no whole numbers, until something rounds them.

`(length / stride).ceil()` is how models in PyTorch compute sizes, and exporters write
the division as one of floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfc.ir.dims import Dim, Expr, floor_div
from perfc.ir.opdef import Abstract, Ratio
from perfc.ir.types import TensorType

_LARGEST = 2**31
"""Denominators are smaller: what is exact here has to be exact in floats, too."""

Rounding = Callable[[Dim, int], "Dim | None"]
"""(numerator, denominator) -> whole number, or None where it is not known."""


def ratio_of(x: Abstract) -> Ratio | None:
    """Return the known values of a few floats, whole or not."""
    if x.elements is not None:
        return x.elements, 1
    return x.ratio


def quotient(type_: TensorType, operands: Sequence[Abstract]) -> Abstract:
    """Divide a few floats by one whole number."""
    left, right = map(ratio_of, operands)
    if left is None or right is None or len(right[0]) != 1:
        return Abstract(type_)
    divisor = right[0][0]
    if isinstance(divisor, Expr) or divisor <= 0:
        return Abstract(type_)
    numerators = tuple(n * right[1] for n in left[0])
    return _reduced(type_, numerators, left[1] * divisor)


def scaled(type_: TensorType, operands: Sequence[Abstract]) -> Abstract:
    """Multiply a few floats by one."""
    left, right = map(ratio_of, operands)
    if left is None or right is None:
        return Abstract(type_)
    if len(left[0]) == 1:
        left, right = right, left
    if len(right[0]) != 1:
        return Abstract(type_)
    numerators = tuple(n * right[0][0] for n in left[0])
    return _reduced(type_, numerators, left[1] * right[1])


def _reduced(type_: TensorType, numerators: tuple[Dim, ...], divisor: int) -> Abstract:
    """Return whole numbers where they are some."""
    if len(numerators) != type_.numel or divisor >= _LARGEST:
        return Abstract(type_)
    whole = tuple(floor_div(n, divisor) for n in numerators)
    if all(w * divisor == n for w, n in zip(whole, numerators, strict=True)):
        return Abstract(type_, whole)
    return Abstract(type_, None, (numerators, divisor))


def rounded(type_: TensorType, x: Abstract, rounding: Rounding) -> Abstract:
    """Round a few floats."""
    if x.ratio is None:
        return Abstract(type_)
    numerators, divisor = x.ratio
    found = [rounding(n, divisor) for n in numerators]
    known = tuple(n for n in found if n is not None)
    return Abstract(type_, known if len(known) == len(found) else None)


def truncated(numerator: Dim, denominator: int) -> Dim:
    """Round towards zero; what has symbols is a size, and not negative."""
    if isinstance(numerator, int) and numerator < 0:
        return -(-numerator // denominator)
    return floor_div(numerator, denominator)


def nearest(numerator: Dim, denominator: int) -> Dim | None:
    """Round to the nearest, halves to even; None where it has symbols."""
    if isinstance(numerator, Expr):
        return None
    from fractions import Fraction  # noqa: PLC0415 - slow, and rarely needed

    return round(Fraction(numerator, denominator))
