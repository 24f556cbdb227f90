"""Arithmetic on sizes: what elementwise ops make of known integers and symbols."""

from __future__ import annotations

from collections.abc import Callable

from perfc.ir.dims import Dim, Expr, product

_MAX_POWER = 64
UnaryFold = Callable[[Dim], Dim]
Fold = Callable[[Dim, Dim], Dim]


class Undecided(Exception):  # noqa: N818 - never leaves the folds
    """What a symbol stands for decides the answer."""


def compare(test: Callable[[int], bool]) -> Fold:
    """Return the fold of a comparison, by a test of the difference."""

    def fold(left: Dim, right: Dim) -> Dim:
        difference = left - right
        if isinstance(difference, Expr):
            # Tell the sign where sizes, which are not negative, cannot change it.
            signs = {coefficient > 0 for _, coefficient in difference.terms}
            if len(signs) > 1 or not any(
                not monomial for monomial, _ in difference.terms
            ):
                raise Undecided
            return int(test(1 if signs.pop() else -1))
        return int(test(difference))

    return fold


def number_of(dim: Dim) -> int:
    """Return a known number: what follows cannot be said of a symbol."""
    if isinstance(dim, Expr):
        raise Undecided
    return dim


def whole_quotient(left: Dim, right: Dim) -> Dim:
    """Divide integers as ONNX does: towards zero."""
    if isinstance(left, int) and isinstance(right, int) and left * right < 0:
        return -(-left // right)
    return left // right


def product_of(left: Dim, right: Dim) -> Dim:
    """Multiply."""
    return left * right


def power(left: Dim, right: Dim) -> Dim:
    """Multiply *left* as often as a small number says."""
    exponent = number_of(right)
    if not 0 <= exponent <= _MAX_POWER:
        raise Undecided
    power: Dim = product([number_of(left)] * exponent)
    return power


def remainder(left: Dim, right: Dim) -> Dim:
    """Divide as Python does: what is left over has the sign of *right*."""
    return left - left // right * right


def truncated_remainder(left: Dim, right: Dim) -> Dim:
    """Divide as C does: what is left over has the sign of *left*."""
    return left - whole_quotient(left, right) * right
