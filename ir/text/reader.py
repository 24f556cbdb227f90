"""A cursor over tokens, with the pieces every part of the assembly shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from perfc.ir.dims import Dim
from perfc.ir.record import AttrValue, Record
from perfc.ir.support import ParseError, PerfcError, unquote
from perfc.ir.text.dim_parser import parse_dim
from perfc.ir.text.lexer import error, tokenize
from perfc.ir.types import DTYPES, DType, parse_dtype

_WORDS: dict[str, AttrValue] = {"none": None, "true": True, "false": False}
_MAX_DEPTH = 60
_MAX_DIGITS = 300
"""Longer numbers are refused: no float is that large."""


class Reader:
    """Reads one text from its first token to its last."""

    def __init__(self, text: str) -> None:
        """Tokenize *text*."""
        self._text = text
        self._kinds, self._texts = tokenize(text)
        self._position = 0
        self._depth = 0
        self.nodes = 0

    def at(self, text: str) -> bool:
        """Whether *text* (a mark or a word) comes next."""
        return self._texts[self._position] == text

    def at_kind(self, kind: str) -> bool:
        """Whether a token of *kind* comes next."""
        return self._kinds[self._position] == kind

    def accept(self, text: str) -> bool:
        """Take *text* (a mark or a word) if it comes next."""
        if self._texts[self._position] != text:
            return False
        self._position += 1
        return True

    def expect(self, text: str) -> None:
        """Take *text* (a mark or a word), or raise."""
        if not self.accept(text):
            self.expected(repr(text))

    def take(self, kind: str) -> str:
        """Take a token of *kind*, or raise."""
        if self._kinds[self._position] != kind:
            self.expected(f"a {kind}")
        self._position += 1
        return self._texts[self._position - 1]

    def name(self, kind: str) -> str:
        """Take a `%value` or `@symbol` and return its name."""
        text = self.take(kind)
        return unquote(text[1:]) if text.endswith('"') else text[1:]

    def word(self) -> str:
        """Take the name of an op or an attribute, quoted or not."""
        return self.string() if self.at_kind("string") else self.take("word")

    def string(self) -> str:
        """Take a string literal."""
        return unquote(self.take("string"))

    def integer(self) -> int:
        """Take an integer."""
        value = self.attribute()
        if not isinstance(value, int) or isinstance(value, bool):
            self.fail("expected an integer")
        return value

    def expect_end(self) -> None:
        """Refuse anything after the end."""
        if not self.at_kind("end"):
            self.expected("the end")

    def record(self) -> Record:
        """Take `{name = value, ...}`."""
        items: dict[str, AttrValue] = {}
        self.expect("{")
        while not self.accept("}"):
            name = self.word()
            if name in items:
                self.fail(f"{name} is given twice")
            self.expect("=")
            items[name] = self.attribute()
            if not self.accept(","):
                self.expect("}")
                break
        return Record(items)

    def attribute(self) -> AttrValue:
        """Take one attribute value."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self.fail("attributes are nested too deep")
        if self.at("{"):
            value: AttrValue = self.record()
        elif self.accept("["):
            values: list[AttrValue] = []
            while not self.accept("]"):
                values.append(self.attribute())
                if not self.accept(","):
                    self.expect("]")
                    break
            value = tuple(values)
        else:
            value = self._scalar()
        self._depth -= 1
        return value

    def _scalar(self) -> AttrValue:
        kind, text = self._kinds[self._position], self._texts[self._position]
        if kind not in _SCALARS or (kind == "word" and text not in _WORDS):
            typed = f" (an element type is !{text})" if text in DTYPES else ""
            self.expected(f"a value{typed}")
        self._position += 1
        try:
            return _SCALARS[kind](text)
        except PerfcError as problem:
            self.fail(str(problem))

    def expected(self, what: str) -> NoReturn:
        """Raise the error that says what should stand here."""
        text = self._texts[self._position]
        found = repr(text[:60]) if text else "the end"
        problem = f"expected {what}, found {found}"
        raise error(self._text, self._position, problem)

    def fail(self, problem: str) -> NoReturn:
        """Raise an error about the token just taken."""
        raise error(self._text, max(self._position - 1, 0), problem) from None


def _number(text: str) -> int | float:
    if len(text) > _MAX_DIGITS:
        msg = "a number is too long"
        raise ParseError(msg)
    try:
        return int(text)
    except ValueError:
        return float(text)


def _expr(text: str) -> Dim:
    return parse_dim(text[1:-1])


def _dtype(text: str) -> DType:
    return parse_dtype(text[1:])


_SCALARS: dict[str, Callable[[str], AttrValue]] = {
    "number": _number,
    "string": unquote,
    "word": _WORDS.__getitem__,
    "expr": _expr,
    "dtype": _dtype,
}
