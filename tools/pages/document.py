"""Whole pages: parts, a style, a script, and a policy by which nothing else runs."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files

import attrs

from perfc.tools.pages.blocks import Drawn, Remarks, Section
from perfc.tools.pages.charts import Chart
from perfc.tools.pages.part import Part
from perfc.tools.pages.tables import Bars, Table
from perfc.tools.pages.timeline import Timeline

_LEAST_LINKS = 3
"""Sections from which on a page lists them at its top."""

_NAMED = (Table, Bars, Chart, Timeline)


def page(title: str, parts: Sequence[Part]) -> str:
    """Return a page: one file that loads nothing, and runs its own script alone.

    Args:
        title: What the browser calls it.
        parts: What it shows; sections among them are listed at its top.

    """
    sections = [one for one in parts if isinstance(one, Section)]
    numbers = {id(one): f"s{number}" for number, one in enumerate(sections)}
    body: list[str] = []
    listed = len(sections) < _LEAST_LINKS
    for part in parts:
        if not isinstance(part, Section):
            body += part.html()
            continue
        if not listed:
            body += _links([(numbers[id(one)], one.title) for one in sections])
            listed = True
        body += attrs.evolve(part, anchor=numbers[id(part)]).html()
    return "\n".join([*_opening(title), *body, *_closing()])


def answer_page(title: str, parts: Sequence[Part]) -> str:
    """Return the page of an answer: its first part, remarks, and the others.

    What is only drawn is made; a table or a picture is a section of its own.
    """
    made: list[Part] = []
    for part in parts:
        made += part.make() if isinstance(part, Drawn) else [part]
    first, *rest = made
    remarks = [part for part in rest if isinstance(part, Remarks)]
    others = [
        Section(part.name, [part]) if isinstance(part, _NAMED) else part
        for part in rest
        if not isinstance(part, Remarks)
    ]
    return page(title, [first, *remarks, *others])


def fragment(parts: Iterable[Part]) -> str:
    """Return parts to put into another page: with a style for them alone, no script."""
    body = "\n".join(line for part in parts for line in part.html())
    return f'<div class="perfc"><style>{_asset("head.css")}</style>\n{body}</div>'


def _links(links: Sequence[tuple[str, str]]) -> Iterator[str]:
    items = "".join(
        f'<li><a href="#{to}">{escape(text)}</a></li>' for to, text in links
    )
    yield f'<nav aria-label="Sections"><ul>{items}</ul></nav>'


def _opening(title: str) -> Iterator[str]:
    style, policy = _style(), _policy()
    yield '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield f"<title>{escape(title)}</title>"
    yield f'<style>{style}</style></head><body class="perfc"><main>'


def _closing() -> Iterator[str]:
    yield f"</main><script>{_script()}</script></body></html>\n"


@functools.cache
def _style() -> str:
    return "\n".join(map(_asset, ("head.css", "page.css", "uplot.css")))


@functools.cache
def _script() -> str:
    licence = f"/*! uPlot\n{_asset('uplot-license.txt')}*/"
    scripts = ("uplot.js", "page.js", "charts.js", "timeline.js")
    return "\n".join([licence, '"use strict";', *map(_asset, scripts)])


@functools.cache
def _policy() -> str:
    """Return the policy of a page: this script and this style, and nothing loaded."""
    return (
        f"default-src 'none'; script-src {_hash(_script())}; "
        f"style-src {_hash(_style())}; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _asset(name: str) -> str:
    return (files("perfc.tools.pages") / "assets" / name).read_text(encoding="utf-8")
