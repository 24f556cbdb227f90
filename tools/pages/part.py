"""What answers are made of, as each format has it, and how pages hold data."""

from __future__ import annotations

import abc
import json
from collections.abc import Iterable, Iterator, Sequence

_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


class Part(abc.ABC):
    """A part of an answer. All text in it is a name, and never markup."""

    __slots__ = ()

    @abc.abstractmethod
    def html(self) -> Iterator[str]:
        """Yield its markup."""

    def printed(self) -> str:
        """Return the part as a terminal shows it; pictures are empty."""
        return ""

    def markdown(self) -> str:
        """Return the part as GitHub shows it; pictures are empty."""
        return markdown_escaped(self.printed())


def text_of(parts: Sequence[Part]) -> str:
    """Return parts as a terminal shows them, a line between."""
    return "\n\n".join(filter(None, (part.printed() for part in parts)))


def markdown_of(parts: Sequence[Part]) -> str:
    """Return parts as GitHub shows them, a line between."""
    return "\n\n".join(filter(None, (part.markdown() for part in parts)))


def markdown_escaped(text: str) -> str:
    """Take away the meaning that Markdown gives to characters of names."""
    return "".join(f"\\{letter}" if letter in "|*_`<\\[" else letter for letter in text)


def columns_text(rows: Iterable[Sequence[str]]) -> str:
    """Return left-aligned columns, the last one free."""
    listed = [tuple(row) for row in rows]
    if not listed:
        return ""
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    lines = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        for row in listed
    ]
    return "\n".join(line.rstrip() for line in lines)


def json_script(value: object) -> str:
    """Return an element that holds what JSON can say, which no text in it can end."""
    text = json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return script_element(text)


def script_element(text: str, name: str = "") -> str:
    """Return an element that holds JSON text, which a browser does not run.

    Args:
        text: The JSON; what could end the element is escaped.
        name: The id of the element; empty for none.

    """
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    own = f' id="{name}"' if name else ""
    return f'<script type="application/json"{own}>{text}</script>'
