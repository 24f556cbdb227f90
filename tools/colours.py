"""Colours of text on a terminal: what they stand for, and where they go.

Text is coloured when it is laid out already, by what its lines are, so that columns
stay aligned and no verb knows of colours.
"""

from __future__ import annotations

import re

_BOLD, _RED, _GREEN, _YELLOW, _CYAN = "1", "31", "32", "33", "36"

_LABELS = {
    "bottleneck": "1;33",
    "warning": _YELLOW,
    "note": _CYAN,
    "info": _CYAN,
    "error": "1;31",
    "perfc: error": "1;31",
}
"""What a line can begin with, before a colon."""

_LABEL = re.compile(rf"(?:{'|'.join(_LABELS)})(?=: )", re.IGNORECASE)
_VERDICT = re.compile(r"(?<!\S)(?:BROKEN|does not fit|out of memory)(?![^\s,.;:])")
_DIFFERENCE = re.compile(
    r"(?<![^\s(])([+\-\N{MINUS SIGN}])(\d[\d.,]*) "
    r"(?:%|[nmuµ]?s|[KMGT]i?B)(?![^\s).,;:])"
)
"""A signed number with its unit. More is red, since it is time, memory or an error."""

_COLUMNS = re.compile(r"\S {2,}\S")
_HEAD = re.compile(r"[a-z]+(?: [a-z]+)*(?=  )")
"""The first cell of a table's head: words, where rows have names and numbers."""


def coloured(text: str) -> str:
    """Return text for a terminal: headings, remarks and differences stand out.

    Without the escapes it is the same text.
    """
    lines = text.split("\n")
    around = ["", *lines, ""]
    return "\n".join(
        _line(line, around[number], around[number + 2])
        for number, line in enumerate(lines)
    )


def _line(line: str, before: str, after: str) -> str:
    """Colour a line between two others."""
    label = _LABEL.match(line)
    if label is not None:
        told = line[label.end() :]
        return _in(_LABELS[label[0].lower()], label[0]) + told
    if _is_heading(line, before, after) or _is_head(line, before, after):
        return _in(_BOLD, line)
    line = _VERDICT.sub(lambda found: _in(_RED, found[0]), line)
    return _DIFFERENCE.sub(_signed, line)


def _is_heading(line: str, before: str, after: str) -> bool:
    alone = not before and line[:1].strip() != "" and _COLUMNS.search(line) is None
    return alone and (after[:1] == " " or _COLUMNS.search(after) is not None)


def _is_head(line: str, before: str, after: str) -> bool:
    first = _COLUMNS.search(before) is None and _HEAD.match(line) is not None
    return first and _COLUMNS.search(after) is not None


def _signed(found: re.Match[str]) -> str:
    if not found[2].strip("0.,"):
        return found[0]
    return _in(_RED if found[1] == "+" else _GREEN, found[0])


def _in(colour: str, text: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m"
