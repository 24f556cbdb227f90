"""Tokens of perfc assembly."""

from __future__ import annotations

import re

from perfc.ir.support import PLAIN_NAME, PLAIN_WORD, STRING, ParseError, budget, spend

_TOKEN = re.compile(
    rf"""
    (?:[ \t\r\n]+|//[^\n]*)*
    (?:
      (?P<value>%(?:{PLAIN_NAME}|{STRING}))
    | (?P<mark>[(){{}}\[\]=,:?])
    | (?P<type>[a-z][a-z0-9]*(?:\.[a-z0-9]+)?\[(?:[^\]"\n]|{STRING})*\](?:@[a-z]+)?)
    | (?P<number>(?:-?(?:[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?|inf)|nan)(?![\w.]))
    | (?P<word>{PLAIN_WORD})
    | (?P<string>{STRING})
    | (?P<dtype>![A-Za-z0-9_.]+)
    | (?P<expr><(?:[^>"\n]|{STRING})*>)
    | (?P<symbol>@(?:{PLAIN_NAME}|{STRING}))
    | (?P<end>\Z)
    | (?P<bad>.)
    )
    """,
    re.VERBOSE,
)


def tokenize(text: str) -> tuple[list[str], list[str]]:
    """Split *text* into the kinds and the texts of its tokens.

    The last token is of kind `end`.
    """
    kinds: list[str] = []
    texts: list[str] = []
    most = budget("values")
    for match in _TOKEN.finditer(text):
        if len(texts) > most:
            spend("values", len(texts))
        kind = str(match.lastgroup)
        kinds.append(kind)
        texts.append(match[kind])
    if "bad" in kinds:
        index = kinds.index("bad")
        raise error(text, index, f"unexpected {texts[index]!r}")
    return kinds, texts


def error(text: str, index: int, problem: str) -> ParseError:
    """Make the error that shows the line of token number *index*."""
    # Only errors need positions, so the tokens do not carry them.
    found = [match.start(str(match.lastgroup)) for match in _TOKEN.finditer(text)]
    start = found[index]
    line = text.count("\n", 0, start)
    shown = text.split("\n")[line].strip()[:100]
    return ParseError(f"line {line + 1}: {problem}: {shown!r}")
