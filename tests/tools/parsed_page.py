"""Pages of verbs, taken apart by Python's own parser of HTML."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

ALLOWED = frozenset(
    {
        *("html", "head", "meta", "title", "style", "body", "main", "script"),
        *("header", "nav", "section", "h1", "h2", "h3", "p", "ul", "li", "a", "dl"),
        *("div", "dt", "dd", "span", "strong", "code", "pre", "details", "summary"),
        *("table", "thead", "tbody", "tr", "th", "td", "button", "input"),
        *("figure", "figcaption", "svg", "rect", "path"),
    }
)
"""Elements that the builder of pages writes."""

_VOID = frozenset({"meta", "input", "rect", "path"})
"""Elements without an end."""


class ParsedPage(HTMLParser):
    """A page: what it shows, and what a browser would run.

    Attributes:
        tags: Names of all elements, in order.
        data: What elements of JSON hold.
        scripts: What a browser runs.
        text: All that is shown.
        rows: The cells of each row of each table.

    """

    def __init__(self, page: str) -> None:
        """Take it apart.

        Raises:
            AssertionError: an element is left open, or asks for something from outside.

        """
        super().__init__()
        self.tags: list[str] = []
        self.data: list[Any] = []
        self.scripts: list[str] = []
        self.rows: list[list[str]] = []
        self._open: list[str] = []
        self._kind = ""
        self._said: list[str] = []
        self.feed(page)
        self.close()
        assert [] == self._open

    @property
    def text(self) -> str:
        """All that is shown, with single spaces."""
        return " ".join(" ".join(self._said).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        own = dict(attrs)
        assert tag in ALLOWED
        assert not any(name.startswith("on") or name == "src" for name in own)
        assert str(own.get("href", "#")).startswith("#")
        self.tags.append(tag)
        self._kind = own.get("type") or "" if tag == "script" else ""
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element that ends at once."""
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        """Note the end of an element."""
        assert tag not in _VOID
        assert tag == self._open.pop()

    def handle_data(self, data: str) -> None:
        """Note text, data or a script."""
        inside = self._open[-1] if self._open else ""
        if inside == "script":
            if self._kind == "application/json":
                self.data.append(json.loads(data))
            else:
                self.scripts.append(data)
        elif inside not in {"style", "title"}:
            self._said.append(data)
            if self.rows and {"td", "th"} & set(self._open):
                self.rows[-1][-1] += data
