"""Read dimensions: sums, products, floor divisions and maxima of symbols."""

from __future__ import annotations

import re

from perfc.ir.dims import MAX_DEPTH, MAX_NUMBER, Dim, maximum, symbol, total
from perfc.ir.support import PLAIN_SYMBOL, STRING, ParseError, VerifyError, unquote

_TOKEN = re.compile(
    rf"\s*(?:(?P<number>[0-9]+)|(?P<name>{PLAIN_SYMBOL}|{STRING})"
    r"|(?P<mark>//|[-+*(),])|(?P<end>\Z)|(?P<bad>.))"
)
_PLAIN_SYMBOL = re.compile(PLAIN_SYMBOL)
_MAX_DIGITS = 60
_MAX_TOKENS = 50_000
_MAX_PARENTHESES = 2 * MAX_DEPTH + 10
"""A quotient of depth n prints with n pairs, and its own operands may add some."""


def parse_dim(text: str) -> Dim:
    """Read a dimension such as `13`, `B`, `"batch size"` or `2*B + 1`."""
    dims = parse_dims(text)
    if len(dims) != 1:
        raise _error(text, "expected one")
    return dims[0]


def parse_dims(text: str) -> tuple[Dim, ...]:
    """Read dimensions separated by commas."""
    if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS:
        return (int(text),)
    if _PLAIN_SYMBOL.fullmatch(text) and text != "max":
        return (symbol(text),)
    reader = _DimReader(text)
    try:
        return reader.dims()
    except VerifyError as error:
        raise _error(text, str(error)) from None
    except ZeroDivisionError:
        raise _error(text, "it divides by zero") from None


def _error(text: str, problem: str) -> ParseError:
    return ParseError(f"not a dimension: {text[:80]!r} ({problem})")


class _DimReader:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [(str(m.lastgroup), m[0].strip()) for m in _TOKEN.finditer(text)]
        if len(self._tokens) > _MAX_TOKENS:
            raise _error(text, "it is too long")
        self._position = 0
        self._depth = 0

    def dims(self) -> tuple[Dim, ...]:
        if self._tokens[0][0] == "end":
            return ()
        found = [self._sum()]
        while self._accept(","):
            found.append(self._sum())
        if self._tokens[self._position][0] != "end":
            raise self._unexpected()
        return tuple(found)

    def _sum(self) -> Dim:
        self._depth += 1
        if self._depth > _MAX_PARENTHESES:
            raise _error(self._text, "it is nested too deep")
        parts = [self._product()]
        while True:
            if self._accept("+"):
                parts.append(self._product())
            elif self._accept("-"):
                parts.append(-self._product())
            else:
                break
        self._depth -= 1
        return self._bounded(total(parts) if len(parts) > 1 else parts[0])

    def _product(self) -> Dim:
        result = self._factor()
        while True:
            if self._accept("*"):
                result = self._bounded(result * self._factor())
            elif self._accept("//"):
                result = result // self._factor()
            else:
                return result

    def _factor(self) -> Dim:
        sign = 1
        while self._accept("-"):
            sign = -sign
        return sign * self._atom()

    def _atom(self) -> Dim:
        kind, text = self._tokens[self._position]
        self._position += 1
        if kind == "number" and len(text) <= _MAX_DIGITS:
            return int(text)
        if text == "max":
            self._expect("(")
            left = self._sum()
            self._expect(",")
            right = self._sum()
            self._expect(")")
            largest: Dim = maximum(left, right)
            return largest
        if kind == "name":
            return symbol(unquote(text))
        if text == "(":
            inner = self._sum()
            self._expect(")")
            return inner
        self._position -= 1
        raise self._unexpected()

    def _accept(self, mark: str) -> bool:
        found = self._tokens[self._position][1] == mark
        self._position += found
        return found

    def _expect(self, mark: str) -> None:
        if not self._accept(mark):
            raise self._unexpected()

    def _unexpected(self) -> ParseError:
        text = self._tokens[self._position][1]
        return _error(self._text, f"unexpected {text[:20]!r}" if text else "it ends")

    def _bounded(self, dim: Dim) -> Dim:
        if isinstance(dim, int) and abs(dim) >= MAX_NUMBER:
            raise _error(self._text, "it is too large")
        return dim
