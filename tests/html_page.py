"""HTML pages as tests read them, without a browser."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

REFERENCES = {"src", "href", "data", "action", "xlink:href", "srcset", "poster"}
_VOID = {"meta", "input", "br", "img", "link"}


class HtmlPage(HTMLParser):
    """What a page has; tags that do not match are refused.

    Attributes:
        title: What the browser calls it.
        text: All that people read, scripts and styles left out.
        headings: Of any level.
        rows: Cells of all rows of tables.
        policy: What it allows itself.
        is_alone: Whether it refers to nothing but its own sections.

    """

    def __init__(self) -> None:
        """Begin without anything."""
        super().__init__()
        self.open: list[str] = []
        self.title = self.text = self.policy = ""
        self.headings: list[str] = []
        self.rows: list[list[str]] = []
        self.is_alone = True
        self._classes: list[str] = []
        self._charts: list[tuple[str, Any]] = []

    @classmethod
    def of(cls, text: str) -> HtmlPage:
        """Read a page, or a part of one."""
        page = cls()
        page.feed(text)
        page.close()
        assert [] == page.open
        return page

    def charts(self, kind: str) -> list[Any]:
        """Return the data of its figures of a kind, `chart` or `timeline`."""
        return [data for name, data in self._charts if name == kind]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag says."""
        given = dict(attrs)
        refers = [given[name] or "" for name in REFERENCES & given.keys()]
        self.is_alone &= all(one.startswith("#") for one in refers)
        self.is_alone &= not any(name.startswith("on") for name in given)
        if tag == "meta" and given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""
        if tag in _VOID:
            self.is_alone &= tag not in {"img", "link"}
            return
        self.open.append(tag)
        self._classes.append(given.get("class") or "")
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
        if tag in {"h1", "h2", "h3"}:
            self.headings.append("")

    def handle_endtag(self, tag: str) -> None:
        """Refuse an end without its beginning."""
        assert tag == self.open.pop()
        self._classes.pop()

    def handle_data(self, data: str) -> None:
        """Note text where it stands."""
        inner = self.open[-1] if self.open else ""
        if inner == "title":
            self.title += data
        if inner == "script" and "figure" in self.open:
            kind = self._classes[len(self.open) - 1 - self.open[::-1].index("figure")]
            self._charts.append((kind, json.loads(data)))
        if inner in {"script", "style", "title"}:
            return
        self.text += data
        if {"td", "th"} & {*self.open}:
            self.rows[-1][-1] += data
        if {"h1", "h2", "h3"} & {*self.open}:
            self.headings[-1] += data
