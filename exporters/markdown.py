"""The format `md`: GitHub-flavoured Markdown, for issues and pull requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from perfc import tools
from perfc.ir import Diagnostic
from perfc.tools import Exporter, Report, format_bytes, format_us


class Markdown(Exporter):
    """What `table` says, as tables that GitHub draws."""

    holds_several: ClassVar[bool] = True

    def export(self, reports: Sequence[Report], path: Path | None) -> str:
        """Return reports under their headings, of several what compares them first."""
        parts = [_document(report) for report in reports]
        if len(reports) > 1:
            parts.insert(0, _comparison(reports))
        return "\n".join("\n".join(part) + "\n" for part in parts)


def _comparison(reports: Sequence[Report]) -> Iterator[str]:
    comparison = tools.Comparison(reports)
    heading, *rows = comparison.rows
    names = dict.fromkeys(_escaped(report.model.name) for report in reports)
    yield f"## {', '.join(names)}, compared"
    yield ""
    sides = "".join(column.side for column in comparison.columns)
    yield from _table(heading, rows, sides)
    yield ""
    for note in comparison.notes:
        yield f"- {_escaped(note)}"


def _document(report: Report) -> Iterator[str]:
    tables = report.tables
    yield f"## {_escaped(tables.title)}"
    yield ""
    yield from _table(("", "value", ""), tables.headline, "lrl")
    yield ""
    yield f"**Bottleneck**: {_escaped(tables.bottleneck)}"
    yield ""
    yield "### Where the time goes (critical path)"
    yield ""
    rows = [(what, format_us(us), share) for what, us, share in tables.breakdown]
    yield from _table(("what", "time", "share"), rows, "lrr")
    yield ""
    if tables.phases:
        yield from ("### Phases of the step", "")
        yield from _table(tables.phases[0], tables.phases[1:], "lrrrrrr")
        yield ""
        yield from (f"### Device memory at its peak: {_escaped(tables.memory_at)}", "")
        sizes = [(what, format_bytes(n), share) for what, n, share in tables.memory]
        yield from _table(("what", "size", "share"), sizes, "lrr")
        yield ""
    if tables.loading:
        yield from (f"### {_escaped(tables.loading_at)}", "")
        yield from _table(tables.loading[0], tables.loading[1:], "llrrrrr")
        yield ""
    if tables.ranks:
        yield from ("### Ranks", "")
        yield from _table(tables.ranks[0], tables.ranks[1:], "llrrrrrrr")
        yield ""
    yield "### Top ops by device time"
    yield ""
    heading, *ops = tables.top_ops or [("op",)]
    yield from _table(heading, ops, "lllrrl"[: len(heading)])
    if tables.to_fix:
        yield from ("", "### What to fix next", "")
        yield from _table(tables.to_fix[0], tables.to_fix[1:], "lllrrr")
    slopes = tables.slopes
    if slopes is not None and slopes.table:
        yield from ("", f"### {slopes.title}", "")
        yield from _table(slopes.table[0], slopes.table[1:], "llrrl")
    yield from _remarks(report.diagnostics)


def _table(
    heading: Sequence[str], rows: Iterable[Sequence[str]], alignment: str
) -> Iterator[str]:
    """Return a table; columns are aligned `l`eft or `r`ight."""
    yield _row(heading)
    yield _row(["---:" if side == "r" else "---" for side in alignment])
    yield from map(_row, rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    """Take away the meaning that Markdown gives to characters of names."""
    for character in "\\`*_[]<>|":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())


def _remarks(diagnostics: Sequence[Diagnostic]) -> Iterator[str]:
    if diagnostics:
        yield ""
        yield "### Remarks"
        yield ""
    for remark in diagnostics:
        text = _escaped(f"{remark.message} [{remark.code}]")
        yield f"- **{remark.level.value}**: {text}"
