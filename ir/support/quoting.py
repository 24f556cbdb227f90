"""String literals of perfc assembly, names that may need them, and short `repr`s."""

from __future__ import annotations

import enum
import functools
import re
from typing import Any, cast

import attrs

STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
"""Regular expression of a string literal."""

PLAIN_NAME = r"[A-Za-z0-9_.]+"
"""Names that follow `%` or `@` without quotes."""

PLAIN_WORD = r"[A-Za-z_][A-Za-z0-9_.]*"
"""Names of ops and attributes without quotes."""

PLAIN_SYMBOL = r"[A-Za-z_?][A-Za-z0-9_.?]*"
"""Names of dimensions without quotes."""

_ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4})|(.))")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Controls of terminals (C0 but for newline and tab, DEL, C1) and of the direction of
text, separators of lines and paragraphs, and halves of characters."""

_ASCII_CONTROLS = tuple(map(chr, (*range(9), *range(11, 32), 127)))

_NAME = re.compile(PLAIN_NAME)
_WORD = re.compile(PLAIN_WORD)
_SYMBOL = re.compile(PLAIN_SYMBOL)
_RESERVED = frozenset({"return", "region", "loc", "inf", "nan"})


def printable(text: str) -> str:
    r"""Write what would steer a terminal, or is no character, as `\u001b`.

    So do JSON, TOML and perfc assembly in their strings: it can be done to a whole
    document of them.
    """
    if text.isascii() and not any(control in text for control in _ASCII_CONTROLS):
        return text
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def quote(text: str) -> str:
    """Write a string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f'"{printable(escaped)}"'


def unquote(text: str) -> str:
    """Read a string literal, or a bare name as itself."""
    if not text.startswith('"'):
        return text
    return _ESCAPE.sub(_unescaped, text[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    code, letter = match.groups()
    return chr(int(code, 16)) if code else _ESCAPED.get(letter, letter)


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


_MOST = 300
"""Characters of what `brief` shows of one object."""

_OF_VALUE = 60
"""Characters of one field there."""


def brief(self: object) -> str:
    """Return a `__repr__` that stays short, whatever hangs off an object of attrs.

    Fields are shown in order as long as there is room: numbers and texts as they are,
    other objects by their names, collections by their sizes.
    """
    kind, parts, room = type(self), list[str](), _MOST
    for field in attrs.fields(cast("Any", kind)):
        if field.repr is False:
            continue
        text = f"{field.name.lstrip('_')}={_brief_value(getattr(self, field.name))}"
        room -= len(text)
        if room < 0:
            parts.append("…")
            break
        parts.append(text)
    return f"{kind.__qualname__}({', '.join(parts)})"


def _brief_value(value: Any) -> str:  # noqa: ANN401 - any field's
    """Return a field's value in few characters, without looking into what is large."""
    kind = type(cast("object", value))
    if value is None or isinstance(value, bool | int | float | str | enum.Enum):
        text = repr(value)
        return text if len(text) <= _OF_VALUE else f"{text[: _OF_VALUE - 1]}…"
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"<{kind.__name__} {'x'.join(map(str, cast('Any', shape)))}>"
    if isinstance(value, tuple | list | dict | set | frozenset):
        size = len(cast("Any", value))
        return f"<{size} {kind.__name__}>"
    name = getattr(value, "name", None)
    named = f" {name[:_OF_VALUE]}" if isinstance(name, str) else ""
    return f"<{kind.__name__}{named}>"
