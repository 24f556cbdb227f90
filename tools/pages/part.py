"""What pages are made of, and how data is held in them."""

from __future__ import annotations

import abc
import json
from collections.abc import Iterator

_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


class Part(abc.ABC):
    """Something that a page shows. All text in it is a name, and never markup."""

    __slots__ = ()

    @abc.abstractmethod
    def html(self) -> Iterator[str]:
        """Yield its markup."""


def json_script(value: object, name: str = "", kind: str = "application/json") -> str:
    """Return an element that holds data, which no text in the data can end.

    Args:
        value: What JSON can say.
        name: The id of the element; empty for none.
        kind: Its type; a browser runs nothing of this one.

    """
    text = json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return script_element(text, name, kind)


def script_element(text: str, name: str, kind: str = "application/json") -> str:
    """Return an element that holds JSON text: no text in it can end the element."""
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    own = f' id="{name}"' if name else ""
    return f'<script type="{kind}"{own}>{text}</script>'
