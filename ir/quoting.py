"""String literals of perfc assembly, and names that may need them."""

from __future__ import annotations

import functools
import re

STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
"""Regular expression of a string literal."""

PLAIN_NAME = r"[A-Za-z0-9_.]+"
"""Names that follow `%` or `@` without quotes."""

PLAIN_WORD = r"[A-Za-z_][A-Za-z0-9_.]*"
"""Names of ops and attributes without quotes."""

PLAIN_SYMBOL = r"[A-Za-z_?][A-Za-z0-9_.?]*"
"""Names of dimensions without quotes."""

_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_NAME = re.compile(PLAIN_NAME)
_WORD = re.compile(PLAIN_WORD)
_SYMBOL = re.compile(PLAIN_SYMBOL)
_RESERVED = frozenset({"return", "region", "loc", "inf", "nan"})


def quote(text: str) -> str:
    """Write a string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f'"{escaped}"'


def unquote(text: str) -> str:
    """Read a string literal, or a bare name as itself."""
    if not text.startswith('"'):
        return text
    return _ESCAPE.sub(lambda m: _ESCAPED.get(m[1], m[1]), text[1:-1])


def name_text(name: str) -> str:
    """Write the name of a value or a graph."""
    return name if _NAME.fullmatch(name) else quote(name)


@functools.lru_cache(maxsize=4096)
def word_text(name: str) -> str:
    """Write the name of an op or an attribute."""
    plain = _WORD.fullmatch(name) and name not in _RESERVED
    return name if plain else quote(name)


@functools.lru_cache(maxsize=4096)
def symbol_text(name: str) -> str:
    """Write the name of a dimension."""
    plain = _SYMBOL.fullmatch(name) and name != "max"
    return name if plain else quote(name)
