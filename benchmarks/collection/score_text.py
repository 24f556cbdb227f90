"""What `benchmarks/score.py` prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import attrs

from collection.collected import Note
from collection.score import Line, Score
from perfc.tools.reports.texts import columns_text

SCHEMA = "perfc.collection_score/1"

_HEADER = (
    *("what", "of", "n", "MAPE", "GMAE", "geomean", "p90", "max", "bias"),
    *("in 90 %", "width"),
)
_WORDS = 2
"""Columns of text; the others are numbers."""


def score_text(score: Score) -> str:
    """Return a table to read, and below it what was left out and why."""
    rows = [_HEADER, *map(_cells, score.lines)]
    lines = [_title(score), "", columns_text(rows), "", *map(_note, score.notes)]
    return "\n".join(lines) + "\n"


def score_markdown(score: Score) -> str:
    """Return a score in Markdown, as documents have their tables."""
    rule = "|" + "---|" * _WORDS + "--:|" * (len(_HEADER) - _WORDS)
    rows = [_HEADER, *map(_cells, score.lines)]
    head, *rest = (f"| {' | '.join(cells)} |" for cells in rows)
    notes = (f"- {_note(note)}" for note in score.notes)
    return "\n".join([f"{_title(score)}:", "", head, rule, *rest, "", *notes]) + "\n"


def score_json(score: Score) -> str:
    """Return `perfc.collection_score/1`: errors are fractions."""
    document = {
        "schema": SCHEMA,
        "target": score.target,
        "predictions": dict(score.made),
        "scores": [_record(line) for line in score.lines],
        "notes": [attrs.asdict(note) for note in score.notes],
    }
    return json.dumps(document, indent=1) + "\n"


FORMATS: Mapping[str, Callable[[Score], str]] = {
    "table": score_text,
    "md": score_markdown,
    "json": score_json,
}


def _title(score: Score) -> str:
    commit, date = score.made.get("perfc_commit", "unknown"), score.made.get("date")
    return f"{score.target}, as predicted by {str(commit)[:12]} on {date}"


def _cells(line: Line) -> tuple[str, ...]:
    errors = line.errors
    shares = (
        *(errors.mape, errors.gmae, errors.geomean_ape, errors.p90, errors.max),
        *(errors.bias, line.coverage90, line.width90),
    )
    return line.what, line.group, f"{errors.rows:,}", *map(_percent, shares)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}".replace("%", " %")


def _note(note: Note) -> str:
    named = f": {'; '.join(note.names)}" if note.names else ""
    counted = f" ({note.count:,})" if note.count else ""
    return f"{note.reason}{counted}{named}"


def _record(line: Line) -> dict[str, object]:
    errors = {
        name: value
        for name, value in attrs.asdict(line.errors).items()
        if name != "rows"
    }
    return {
        "what": line.what,
        "group": line.group,
        "rows": line.errors.rows,
        **errors,
        "coverage90": line.coverage90,
        "width90": line.width90,
    }
