"""Dimensions: canonical form, arithmetic, text, evaluation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.ir.strategies import DIMS

from perfc.ir import ParseError, PerfcError
from perfc.ir.dims import (
    Dim,
    Expr,
    ceil_div,
    evaluate,
    maximum,
    product,
    symbol,
    symbols_of,
)
from perfc.ir.support import UnboundSymbolError, VerifyError
from perfc.ir.text import parse_dim

B, C = symbol("B"), symbol("C")
_SYMBOLS = ("B", "N", "s0", "?", "max", "batch size", 'q"]>,', "3x")
_BINDINGS = st.fixed_dictionaries({name: st.integers(1, 50) for name in _SYMBOLS})


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (B + 1, "B + 1"),
        (1 - B, "-B + 1"),
        (2 * B * B - 3 * C, "2*B*B - 3*C"),
        (B // 2, "B//2"),
        (2 * (B // 3), "2*(B//3)"),
        (-(B // 3), "-(B//3)"),
        (ceil_div(B, 3), "-((-B)//3)"),
        (B // 2 // 3, "(B//2)//3"),
        (B // (C + 1), "B//(C + 1)"),
        (1 // B, "1//B"),
        (C * (B // 2), "(B//2)*C"),
        (maximum(C, B), "max(B, C)"),
        (B % 3, "B - 3*(B//3)"),
        (symbol("batch size") + 1, '"batch size" + 1'),
        (symbol("max") + symbol("?"), '"max" + ?'),
    ],
)
def test_text(dim: Dim, text: str) -> None:
    """A dimension prints one way, with the parentheses it needs."""
    assert text == str(dim)
    assert dim == parse_dim(text)


@given(DIMS)
def test_dimensions_read_back(dim: Dim) -> None:
    """What a dimension prints is read as the same dimension."""
    assert dim == parse_dim(str(dim))


@given(DIMS, DIMS, DIMS)
def test_canonical_form(a: Dim, b: Dim, c: Dim) -> None:
    """Sums and products that are equal as polynomials are equal, and print alike."""
    assert a + b == b + a
    assert str(a * b) == str(b * a)
    assert (a + b) + c == a + (b + c)
    assert a * (b + c) == a * b + a * c
    assert 0 == a - a
    assert maximum(a, b) == maximum(b, a)


@given(DIMS, DIMS, _BINDINGS)
def test_arithmetic_agrees_with_numbers(
    a: Dim, b: Dim, bindings: dict[str, int]
) -> None:
    """Putting in numbers and computing may be done in either order."""
    x, y = evaluate(a, bindings), evaluate(b, bindings)

    assert x + y == evaluate(a + b, bindings)
    assert x - y == evaluate(a - b, bindings)
    assert x * y == evaluate(a * b, bindings)
    assert max(x, y) == evaluate(maximum(a, b), bindings)
    assert x // 3 == evaluate(a // 3, bindings)
    assert x // -3 == evaluate(a // -3, bindings)
    assert x % 5 == evaluate(a % 5, bindings)
    assume(y)
    assert x // y == evaluate(a // b, bindings)


@given(DIMS, st.lists(_BINDINGS, min_size=1, max_size=4))
def test_arrays(dim: Dim, rows: list[dict[str, int]]) -> None:
    """On arrays of numbers a dimension gives the array of its values."""
    arrays = {name: np.array([row[name] for row in rows]) for name in _SYMBOLS}
    expected: list[int] = [evaluate(dim, row) for row in rows]
    assume(max(map(abs, expected)) < 2**40)

    found = np.broadcast_to(evaluate(dim, arrays), len(rows))

    assert expected == found.tolist()


def test_exact_division() -> None:
    """What divides evenly is no quotient."""
    assert 2 * B == 4 * B * C // (2 * C)
    assert B + 2 == (3 * B + 6) // 3
    assert 1 == (B + 1) // (B + 1)
    assert 8 == (8 * B + 8) // (B + 1)
    assert isinstance((8 * B + 4) // (B + 1), Expr)
    assert 0 == 0 // B
    assert isinstance((3 * B + 5) // 3, Expr)


def test_division_by_zero() -> None:
    """Nothing is divided by 0, now or when a symbol turns out to be 0."""
    with pytest.raises(ZeroDivisionError):
        _ = B // 0
    with pytest.raises(VerifyError, match="dimension B//C divides by zero"):
        evaluate(B // C, {"B": 1, "C": 0})


def test_only_integers() -> None:
    """A float in a dimension is a mistake, not a rounding."""
    with pytest.raises(TypeError):
        B * 0.5  # type: ignore[operator]
    with pytest.raises(TypeError):
        B + 0.5  # type: ignore[operator]


def test_unbound_symbol() -> None:
    """A symbol without a number is named."""
    with pytest.raises(UnboundSymbolError, match="dimension 'C' has no value"):
        evaluate(B * C, {"B": 2})


def test_symbols() -> None:
    """Symbols are found inside quotients and maxima."""
    assert {"B", "C"} == symbols_of([3, maximum(B // 7, C)])
    assert {"B"} == (B // 2 + 1).symbols()  # type: ignore[union-attr]


def test_formulas_on_numbers() -> None:
    """The same helpers run on plain ints."""
    assert (3, 24, 1) == (ceil_div(7, 3), product([2, 3, 4]), product([]))
    assert (5, 0) == (maximum(5, 3), ceil_div(0, 3))


_NO_DIMENSIONS = [
    *("", " ", "B C", "2B", "B**2", "9**9**9", "B/2", "1.5", "f(2)", "max(B)"),
    *("(B", "B)", "B,C", "max", "lambda: 1", "True + '", "0x10", "1_000"),
    *("B//0", "²"),
]


@pytest.mark.parametrize("text", _NO_DIMENSIONS)
def test_not_a_dimension(text: str) -> None:
    """Anything but an integer expression is refused."""
    with pytest.raises(ParseError, match="not a dimension"):
        parse_dim(text)


@given(st.text() | st.text(alphabet='AB19+-*/(),max "\\'))
def test_random_text(text: str) -> None:
    """No text makes the reader of dimensions fail in another way."""
    try:
        dim = parse_dim(text)
    except PerfcError:
        return

    assert dim == parse_dim(str(dim))


def _square(dim: Dim) -> Dim:
    return dim * dim


def _scale(dim: Dim) -> Dim:
    return dim * 2**150


def _halve(dim: Dim) -> Dim:
    return dim // 2


def _nest(dim: Dim) -> Dim:
    return (dim + 1) // (dim * dim + 3)


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (_square, "too long"),
        (_scale, "too large"),
        (_halve, "nested too deep"),
        (_nest, r"long|deep"),
    ],
)
def test_growth_is_bounded(step: Callable[[Dim], Dim], problem: str) -> None:
    """Arithmetic that would eat the memory or the stack stops with an error."""
    with pytest.raises(VerifyError, match=problem):
        _repeat(step, B + 1)


def _repeat(step: Callable[[Dim], Dim], dim: Dim) -> None:
    for _ in range(100):
        dim = step(dim)
