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
