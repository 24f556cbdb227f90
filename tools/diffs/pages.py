"""The forms in which differences are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

from perfc.tools.diffs.difference import Diff
from perfc.tools.diffs.kernel_rows import kernel_table
from perfc.tools.reports import PAGE_STYLE, format_json


def _json(found: Sequence[Diff]) -> str:
    if len(found) == 1:
        return found[0].to_json()
    documents = [one.to_dict() for one in found]
    return format_json({"schema": "perfc.diffs/1", "diffs": documents})


def _table(found: Sequence[Diff]) -> str:
    return "\n".join(map(str, found))


def _markdown(found: Sequence[Diff]) -> str:
    return "\n".join("\n".join(_section(one)) + "\n" for one in found)


def _section(one: Diff) -> Iterator[str]:
    yield f"### {_plain(one.base.name)} → {_plain(one.head.name)}"
    yield ""
    yield f"**{_plain(one.headline)}**"
    if one.steps:
        heading, *rows = one.table
        yield ""
        yield f"| {' | '.join(heading)} |"
        yield "| --- | ---: | ---: | --- |"
        for row in rows:
            yield f"| {' | '.join(map(_plain, row))} |"
    if one.left_out:
        yield ""
        yield one.left_out
    names, *launches = kernel_table(one.pairs)
    if one.with_trace and launches:
        yield ""
        yield f"| {' | '.join(names)} |"
        yield "| --- | --- | ---: | ---: | ---: | --- | --- |"
        for cells in launches:
            yield f"| {' | '.join(map(_plain, cells))} |"
    yield from map(_plain, one.said)


def _plain(text: str) -> str:
    """Take away the meaning that Markdown gives to characters of names."""
    for character in "\\`*_[]<>|":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())


def _html(found: Sequence[Diff]) -> str:
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>perfc diff</title><style>{PAGE_STYLE}</style></head><body>",
    ]
    for one in found:
        parts += _page(one)
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _page(one: Diff) -> Iterator[str]:
    yield f"<section><h1>{escape(one.base.name)} → {escape(one.head.name)}</h1>"
    yield f"<p>{escape(one.headline)}</p><table>"
    longest = max((abs(step.delta_us) for step in one.steps), default=0.0)
    (name, *others), *rows = one.table
    headings = "".join(f"<th>{escape(cell)}</th>" for cell in (name, *others))
    yield f"<tr>{headings}</tr>"
    for step, row in zip(one.steps, rows, strict=False):
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
        width = 24 * abs(step.delta_us) / longest
        bar = f'<span class="bar" style="width:{width:.2f}em"></span>'
        yield f"<tr>{cells}<td>{bar}</td></tr>"
    yield f'</table><p class="note">{escape(one.left_out)}</p></section>'


FORMATS: Mapping[str, Callable[[Sequence[Diff]], str]] = {
    "table": _table,
    "md": _markdown,
    "json": _json,
    "html": _html,
}
"""What writes each `--format`."""
