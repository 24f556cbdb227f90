"""Parts of answers that are words and numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import Literal, TypeAlias

import attrs

from perfc.ir import Diagnostic
from perfc.ir.support import Level
from perfc.tools.pages.part import (
    Part,
    markdown_escaped,
    markdown_of,
    script_element,
    text_of,
)


@attrs.frozen
class Text(Part):
    """A paragraph.

    Attributes:
        text: What it says.
        dim: Whether it only explains what is beside it.

    """

    text: str
    dim: bool = False

    def html(self) -> Iterator[str]:
        """Yield a paragraph."""
        own = ' class="dim"' if self.dim else ""
        yield f"<p{own}>{escape(self.text)}</p>"

    def printed(self) -> str:
        """Return the paragraph."""
        return self.text


@attrs.frozen
class Preformatted(Part):
    """Lines whose columns are spaces."""

    text: str

    def html(self) -> Iterator[str]:
        """Yield the lines, in a box of their own that scrolls."""
        yield f'<pre class="scroll" tabindex="0">{escape(self.text)}</pre>'

    def printed(self) -> str:
        """Return the lines."""
        return self.text

    def markdown(self) -> str:
        """Return the lines as they are."""
        return f"```text\n{self.text}\n```"


@attrs.frozen
class Data(Part):
    """A document for other programs, which the page holds and does not show.

    Attributes:
        name: The id of its element.
        text: JSON text.

    """

    name: str
    text: str

    def html(self) -> Iterator[str]:
        """Yield the element."""
        yield script_element(self.text, self.name)


Badge: TypeAlias = tuple[str, Literal["", "good", "bad"]]
"""A word on the answer, and whether it is good news."""


@attrs.frozen
class Heading(Part):
    """What the page is about: the answer in one number, and what was asked.

    Attributes:
        title: What was analysed; empty where a heading above says it.
        asked: Settings of the question, each a few words.
        answer: The number; empty for none.
        label: What the number is.
        remark: How sure it is.
        badges: What else there is to know at once, and whether that is `good`, `bad` or
            neither.

    """

    title: str
    asked: Sequence[str] = ()
    answer: str = ""
    label: str = ""
    remark: str = ""
    badges: Sequence[Badge] = ()

    def html(self) -> Iterator[str]:
        """Yield a header."""
        yield '<header class="head">'
        if self.title:
            yield f"<h1>{escape(self.title)}</h1>"
        if self.asked:
            listed = "".join(f"<li>{escape(one)}</li>" for one in self.asked)
            yield f'<ul class="asked">{listed}</ul>'
        if self.answer:
            yield f'<p class="answer"><span class="dim">{escape(self.label)}</span> '
            yield f"<strong>{escape(self.answer)}</strong> "
            yield f'<span class="dim">{escape(self.remark)}</span></p>'
        if self.badges:
            yield '<ul class="badges">'
            for text, tone in self.badges:
                yield f'<li class="badge {escape(tone)}">{escape(text)}</li>'
            yield "</ul>"
        yield "</header>"

    def printed(self) -> str:
        """Return the question; the answer is in what follows."""
        return "\n".join([self.title, *self.asked])

    def markdown(self) -> str:
        """Return the question, its first line as a heading."""
        title, *asked = map(markdown_escaped, (self.title, *self.asked))
        return "\n\n".join([f"## {title}", *asked])


@attrs.frozen
class Card:
    """A number of the answer.

    Attributes:
        label: What it is.
        value: It, with its unit; empty where the remark says all.
        remark: What there is to know of it.

    """

    label: str
    value: str
    remark: str = ""


@attrs.frozen
class Cards(Part):
    """Numbers beside each other."""

    cards: Sequence[Card]

    def html(self) -> Iterator[str]:
        """Yield a list of terms, each with its number."""
        yield '<dl class="cards">'
        for card in self.cards:
            yield f"<div><dt>{escape(card.label)}</dt>"
            if card.value:
                yield f'<dd class="value">{escape(card.value)}</dd>'
            yield f'<dd class="dim">{escape(card.remark)}</dd></div>'
        yield "</dl>"


_AT_ONCE = 4
"""Warnings that are shown before the others are asked for."""


@attrs.frozen
class Remarks(Part):
    """What there is to say of the input and the answer; warnings first and at once.

    Attributes:
        diagnostics: What was said.
        title: What the rest is called.
        form: How a terminal shows each, the diagnostic being `0`; empty: not at all.
        between: What is between two of them there.
        codes: Of those that a terminal shows; empty: of all.

    """

    diagnostics: Sequence[Diagnostic]
    title: str = "Assumptions and notes"
    form: str = ""
    between: str = "\n"
    codes: Sequence[str] = ()

    def html(self) -> Iterator[str]:
        """Yield a box for what is wrong or may be, and a list to open of the rest."""
        found = [one for one in self.diagnostics if one.level is Level.WARNING]
        if found:
            yield '<div class="remarks warning" role="note">'
            yield f"<h2>{_warnings(len(found))}</h2>"
            yield from _listed(found[:_AT_ONCE])
            if rest := found[_AT_ONCE:]:
                yield f"<details><summary>{len(rest):,} more</summary>"
                yield from _listed(rest)
                yield "</details>"
            yield "</div>"
        rest = [one for one in self.diagnostics if one.level is Level.NOTE]
        if rest:
            yield f'<details class="remarks"><summary>{escape(self.title)} '
            yield f"({len(rest):,})</summary>"
            yield from _listed(rest)
            yield "</details>"

    def printed(self) -> str:
        """Return them in their form."""
        if not self.form:
            return ""
        codes = self.codes or [one.code for one in self.diagnostics]
        shown = [one for one in self.diagnostics if one.code in codes]
        return self.between.join(map(self.form.format, shown))

    def markdown(self) -> str:
        """Return a list."""
        return "\n".join(
            f"- {one.level.value}: {markdown_escaped(one.message)}"
            for one in self.diagnostics
        )


def _warnings(count: int) -> str:
    return "Warning" if count == 1 else f"{count:,} warnings"


def _listed(found: Sequence[Diagnostic]) -> Iterator[str]:
    yield "<ul>"
    for one in found:
        where = f" <span>({escape(one.where)})</span>" if one.where else ""
        code = f" <code>[{escape(one.code)}]</code>"
        yield f"<li>{escape(one.message)}{where}{code}</li>"
    yield "</ul>"


@attrs.frozen
class Section(Part):
    """Parts under a heading.

    Attributes:
        title: The heading.
        parts: What is below it.
        note: What there is to know before it is read.
        level: Of the heading, 2 or 3; the list at the top of a page has those of 2.
        titled: Whether a terminal and GitHub show the heading, too.
        folded: None: it is always shown; else it can be folded, and this says whether
            it is at first.
        anchor: What links to it name; given by the page.

    """

    title: str
    parts: Sequence[Part]
    note: str = ""
    level: Literal[2, 3] = 2
    folded: bool | None = None
    titled: bool = False
    anchor: str = ""

    def html(self) -> Iterator[str]:
        """Yield a section."""
        heading = f"<h{self.level}>{escape(self.title)}</h{self.level}>"
        yield f'<section id="{self.anchor}">' if self.anchor else "<section>"
        if self.folded is None:
            yield heading
        else:
            opened = "" if self.folded else " open"
            yield f'<details class="fold"{opened}><summary>{heading}</summary>'
        if self.note:
            yield f'<p class="dim">{escape(self.note)}</p>'
        for part in self.parts:
            yield from part.html()
        yield "</section>" if self.folded is None else "</details></section>"

    def printed(self) -> str:
        """Return the parts, below the heading where that is shown."""
        below = text_of(self.parts)
        return f"{self.title}\n{below}" if self.titled else below

    def markdown(self) -> str:
        """Return the parts, below the heading where that is shown."""
        below = markdown_of(self.parts)
        title = markdown_escaped(self.title)
        return f"### {title}\n\n{below}" if self.titled else below


@attrs.frozen
class Drawn(Part):
    """What only a page shows; it is made when a page is.

    Attributes:
        make: Make it.
        instead: What other formats have in its place.

    """

    make: Callable[[], Iterable[Part]]
    instead: Sequence[Part] = ()

    def html(self) -> Iterator[str]:
        """Yield the markup of the parts that are made."""
        for part in self.make():
            yield from part.html()

    def printed(self) -> str:
        """Return the parts in its place."""
        return text_of(self.instead)

    def markdown(self) -> str:
        """Return the parts in its place."""
        return markdown_of(self.instead)
