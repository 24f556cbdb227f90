"""Sizes of an archive: as sympy prints them, or spelled out as it constructs them.

PyTorch writes `Add(Symbol('s0', positive=True, integer=True), Integer(1))` since 2.4,
`s0 + 1` before. The functions are those of `torch/utils/_sympy/functions.py`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import TypeAlias

from perfc.ir import ParseError
from perfc.ir.dims import Dim, ceil_div, maximum, product, symbol
from perfc.ir.support import VerifyError
from perfc.ir.text import parse_dim

_POWER = re.compile(r"\b([A-Za-z_]\w*)\*\*([2-8])\b")
_TOKEN = re.compile(
    r"\s*(?:(?P<call>[A-Za-z_]\w*)\(|'(?P<text>[^']{1,200})'|(?P<number>-?\d{1,18})\b"
    r"|(?P<option>[a-z]\w*=\w+)|(?P<mark>[,)])|(?P<bad>.))"
)
_MAX_DEPTH = 50
_MAX_POWER = 8
_MAX_NAME = 200
_TWO = 2
_FINEST = 10**6
"""The largest denominator of a scale: 0.3333333333333333 is a third."""

_Tree: TypeAlias = "int | str | tuple[str, list[_Tree]]"
"""A number, a name, or a call and its arguments."""


@functools.lru_cache(maxsize=4096)
def parse_expression(text: str) -> Dim:
    """Read a size; what cannot be read is a symbol of its own."""
    try:
        if "Symbol('" in text or text.startswith("Integer("):
            return _value(_tree(text))
        plain = _POWER.sub(lambda m: "*".join([m[1]] * int(m[2])), text)
        return parse_dim(plain.replace("Max(", "max("))
    except (ParseError, VerifyError, ZeroDivisionError):
        return symbol(text[:_MAX_NAME])


def _tree(text: str) -> _Tree:
    """Read calls within calls."""
    outermost: list[_Tree] = []
    open_calls = [outermost]
    for kind, found in _tokens(text):
        if kind == "call":
            call: tuple[str, list[_Tree]] = (found, [])
            open_calls[-1].append(call)
            open_calls.append(call[1])
        elif found == ")":
            open_calls.pop()
        elif kind in {"text", "number"}:
            open_calls[-1].append(int(found) if kind == "number" else found)
        if not 0 < len(open_calls) <= _MAX_DEPTH or kind == "bad":
            raise _unread(text)
    if len(open_calls) != 1 or len(outermost) != 1:
        raise _unread(text)
    return outermost[0]


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(text.rstrip()):
        kind = str(match.lastgroup)
        yield kind, match[kind]


def _value(tree: _Tree) -> Dim:
    """Work out what a call makes."""
    if isinstance(tree, int):
        return tree
    name, given = ("", []) if isinstance(tree, str) else tree
    if name == "Symbol" and len(given) == 1 and isinstance(given[0], str):
        return symbol(given[0])
    if name in _ROUNDED and len(given) == 1:
        return _ROUNDED[name](*_ratio(given[0]))
    found = _FUNCTIONS.get(name)
    least, most = _COUNTS.get(name, (2, 2))
    if found is None or not least <= len(given) <= most:
        raise _unread(str(tree))
    return found(*map(_value, given))


def _ratio(tree: _Tree) -> tuple[Dim, Dim]:
    """Work out a number that is no integer, as a numerator and a denominator."""
    name, given = tree if isinstance(tree, tuple) else ("", [])
    if name == "IntTrueDiv" and len(given) == _TWO:
        return _value(given[0]), _value(given[1])
    if name == "ToFloat" and len(given) == 1:
        return _value(given[0]), 1
    if name == "Float" and given and isinstance(given[0], str):
        return _fraction(given[0])
    if name == "Mul" and given:
        tops, bottoms = zip(*map(_ratio, given), strict=True)
        return _product(*tops), _product(*bottoms)
    raise _unread(str(tree))


def _fraction(text: str) -> tuple[int, int]:
    try:
        found = Fraction(text).limit_denominator(_FINEST)
    except ValueError:
        raise _unread(text) from None
    return found.numerator, found.denominator


def _unread(text: str) -> ParseError:
    return ParseError(f"not a size: {text[:80]!r}")


def _power(base: Dim, exponent: Dim) -> Dim:
    if not isinstance(exponent, int) or not 0 < exponent <= _MAX_POWER:
        raise _unread(str(exponent))
    return _product(*[base] * exponent)


def _largest(*dims: Dim) -> Dim:
    return functools.reduce(maximum, dims)


def _divide(one: Dim, other: Dim) -> Dim:
    return one // other


def _modulo(one: Dim, other: Dim) -> Dim:
    return one - other * (one // other)


def _least(*dims: Dim) -> Dim:
    return -_largest(*(-dim for dim in dims))


def _sum(*dims: Dim) -> Dim:
    return sum(dims)


def _product(*dims: Dim) -> Dim:
    made: Dim = product(dims)
    return made


_FUNCTIONS: Mapping[str, Callable[..., Dim]] = {
    "Integer": _sum,
    "Add": _sum,
    "Mul": _product,
    "Pow": _power,
    "PowByNatural": _power,
    "Max": _largest,
    "Min": _least,
    "FloorDiv": _divide,
    "CleanDiv": _divide,
    "CeilDiv": ceil_div,
    "Mod": _modulo,
    "PythonMod": _modulo,
}
"""What functions make of sizes."""

_COUNTS: Mapping[str, tuple[int, int]] = {
    "Integer": (1, 1),
    **dict.fromkeys(("Add", "Mul", "Max", "Min"), (1, 1000)),
}
"""The least and most arguments of those that do not take two."""

_ROUNDED: Mapping[str, Callable[[Dim, Dim], Dim]] = {
    "FloorToInt": _divide,
    "TruncToInt": _divide,
    "CeilToInt": ceil_div,
}
"""What makes an integer of a ratio: sizes are positive."""
