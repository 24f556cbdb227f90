"""The table of `make accuracy`: to read, in Markdown, and in the documents."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfc.tools.reports.texts import columns_text
from scoring.committed import Committed, Verdict
from scoring.figures import LEVEL, Beside, Line

ROOT = Path(__file__).parents[2]
PAGES = {"accuracy": ROOT / "docs/accuracy.md", "evidence": ROOT / "docs/evidence.md"}
"""Documents with a table: of families of lines, and of all lines."""

BEGIN, END = "<!-- make accuracy: begin -->", "<!-- make accuracy: end -->"

_FIGURES = ("mape", "gmae", "p90", "max", "bias", "inside", "width")
_HEADER = (
    *("MAPE", "GMAE", "p90", "max", "bias", "in 90 %", "width"),
    *("aimed at", "others, same rows"),
)

BARS = Path(__file__).with_name("bars.toml")

MISSED = "**missed**"

INSIDE, ENOUGH = (0.85, 0.95), 50
"""Shares of rows that 90 % intervals may hold, of lines with so many rows."""


def text_table(found: Sequence[Verdict]) -> str:
    """Return the table with verdicts, and below it what fails."""
    header = ("unseen", "what", "n", *_HEADER, "committed MAPE", "")
    rows = [header, *(_verdict_cells(one) for one in found)]
    reasons = [f"{one.word}: {one.reason()}" for one in found if one.fails]
    return "\n".join([columns_text(rows), "", *reasons]).rstrip() + "\n"


def _verdict_cells(one: Verdict) -> tuple[str, ...]:
    committed = ""
    if one.committed is not None:
        mape, noise = one.committed.figures["mape"], one.committed.noise["mape"]
        committed = f"{percent(mape)} ± {percent(noise)}"
    line = one.line
    return (line.kind, line.what, f"{line.rows:,}", *_cells(line), committed, one.word)


def markdown_table(lines: Sequence[Line], behind: Sequence[Line] = ()) -> str:
    """Return a table in Markdown.

    Args:
        lines: What it lists.
        behind: Lines of families that are listed as a whole: it is said how many of
            them miss what is aimed at.

    """
    rule = "|---|---|" + "--:|" * 8 + "---|---|"
    head = ("unseen", "what", "n", *_HEADER)
    rows = (
        (line.kind, line.what, f"{line.rows:,}", *_cells(line, behind))
        for line in lines
    )
    first, *others = (f"| {' | '.join(cells)} |" for cells in (head, *rows))
    return "\n".join([first, rule, *others])


def short(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of the short table: of a family of several only the whole."""
    wholes = {(x.kind, x.what, x.scorer) for x in lines if not x.family}
    return [
        line
        for line in lines
        if not line.family or (line.kind, line.family, line.scorer) not in wholes
    ]


def long(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of families, one by one."""
    few = {line.key for line in short(lines)}
    return [line for line in lines if line.key not in few]


def write_pages(committed: Committed) -> None:
    """Put the tables into the documents, between their marks."""
    for name, path in PAGES.items():
        page = path.read_text(encoding="utf-8")
        path.write_text(with_table(page, name, committed), encoding="utf-8")


def with_table(page: str, name: str, committed: Committed) -> str:
    """Return a document with the table of today."""
    few, many = short(committed.lines), long(committed.lines)
    text = markdown_table(few, many) if name == "accuracy" else markdown_table(many)
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def _cells(line: Line, behind: Sequence[Line] = ()) -> tuple[str, ...]:
    numbers = (line.figures.get(name) for name in _FIGURES)
    shown = ("" if number is None else percent(number) for number in numbers)
    others = "; ".join(map(_beside, line.beside))
    aims = "; ".join([*_aims(line), *_missed_by(line, behind)])
    return (*shown, aims, others)


def _missed_by(whole: Line, behind: Sequence[Line]) -> Iterator[str]:
    """Yield how many lines of a family miss what is aimed at; none if none does."""
    members = [
        line
        for line in behind
        if (line.kind, line.family, line.scorer)
        == (whole.kind, whole.what, whole.scorer)
    ]
    missed = sum(any(MISSED in aim for aim in _aims(line)) for line in members)
    if missed:
        yield f"{missed} of {len(members)} lines: {MISSED}"


def _aims(line: Line) -> Iterator[str]:
    """Yield the bars of a line and whether it meets them; of intervals only if not."""
    for name, bar in bars().get(line.key, {}).items():
        met = "met" if line.figures[name] <= bar else MISSED
        yield f"{name.upper()} {percent(bar)}: {met}"
    low, high = INSIDE
    share = line.figures.get("inside", LEVEL)
    if line.rows >= ENOUGH and not low <= share <= high:
        yield f"{100 * low:.0f} to {100 * high:.0f} % inside: {MISSED}"


@functools.cache
def bars() -> dict[str, dict[str, float]]:
    """Return the bars, by the key of a line, then by figure."""
    found: dict[str, dict[str, float]]
    found = tomllib.loads(BARS.read_text(encoding="utf-8"))["bars"]
    return found


def _beside(one: Beside) -> str:
    if one.statistic == "mape":
        return f"{one.name} {percent(one.value)}"
    own = f"{one.statistic}, perfc {percent(one.own)}"
    return f"{one.name} {percent(one.value)} ({own})"


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{share:.1%}".replace("%", " %")
