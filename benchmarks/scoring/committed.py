"""The committed figures, and the verdict on those of today."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from perfc.ir import PerfcError
from scoring.figures import Beside, Line, statistic_of, worse_by
from scoring.group import KINDS, Group

SCHEMA = "perfc.accuracy/1"
PREDICTORS = Path(__file__).with_name("predictors.toml")
WORSE, BETTER, NEW, MISSING = "WORSE", "better", "new", "MISSING"


@attrs.frozen
class Committed:
    """Lines as they were committed, and why some are worse than before.

    Attributes:
        lines: In the order of the table.
        notes: By the key of a line, why its figures are what they are.

    """

    lines: Sequence[Line] = ()
    notes: Mapping[str, str] = attrs.field(factory=dict[str, str])

    @classmethod
    def read(cls, path: Path) -> Committed:
        """Read what was written; nothing where no file is.

        Raises:
            PerfcError: the file is no such file.

        """
        if not path.exists():
            return cls()
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            schema = found["schema"]
            lines = [_line(record) for record in found["lines"]]
            notes = dict(found["notes"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            msg = f"{path}: no figures of `make accuracy` ({error}); write them anew"
            raise PerfcError(msg) from error
        if schema != SCHEMA:
            msg = f"{path}: schema {schema}, expected {SCHEMA}; write it anew"
            raise PerfcError(msg)
        return cls(lines, notes)

    def write(self, path: Path) -> None:
        """Write the same file for the same figures."""
        content = {
            "schema": SCHEMA,
            "notes": dict(self.notes),
            "lines": [attrs.asdict(line) for line in self.lines],
        }
        text = json.dumps(content, indent=1, sort_keys=True)
        path.write_text(text + "\n", encoding="utf-8")

    def updated(
        self, now: Sequence[Line], scorers: Sequence[str], order: Sequence[str]
    ) -> Committed:
        """Return these figures with those of some scorers as they are now.

        Notes of lines that are gone go with them.

        Args:
            now: Lines of those scorers.
            scorers: Which.
            order: All scorers in the order of the table.

        """
        kept = [line for line in self.lines if line.scorer not in scorers]
        lines = in_order([*kept, *now], order)
        keys = {line.key for line in lines}
        notes = {key: note for key, note in self.notes.items() if key in keys}
        return Committed(lines, notes)


def _line(record: Mapping[str, Any]) -> Line:
    beside = tuple(Beside(**each) for each in record["beside"])
    return Line(**{**record, "beside": beside})


def in_order(lines: Sequence[Line], scorers: Sequence[str]) -> list[Line]:
    """Return lines by what is unseen, then by their scorer, else as they come."""
    kinds = list(KINDS)
    return sorted(
        lines, key=lambda line: (kinds.index(line.kind), scorers.index(line.scorer))
    )


@attrs.frozen
class Verdict:
    """A line now and as committed.

    Attributes:
        now: None where it is not scored any more.
        committed: None where it is new.

    """

    now: Line | None
    committed: Line | None

    @property
    def line(self) -> Line:
        """The line as it is now, else as it was."""
        found = self.now or self.committed
        assert found is not None  # one of both is there
        return found

    @property
    def word(self) -> str:
        """What to do about it; nothing where the word is empty."""
        if self.now is None:
            return MISSING
        if self.committed is None:
            return NEW
        changes = worse_by(self.now, self.committed).values()
        if any(change > 0 for change in changes):
            return WORSE
        return BETTER if changes else ""

    @property
    def fails(self) -> bool:
        """Whether `make accuracy` ends with 1 for it."""
        return self.word in (WORSE, MISSING)

    def reason(self) -> str:
        """Return why it fails, one line."""
        if self.now is None or self.committed is None:
            return f"{self.line.key}: committed, but not scored any more"
        parts = [
            f"{name} {self.committed.figures[name]:.1%} -> {self.now.figures[name]:.1%}"
            f" (noise {self.committed.noise[name]:.1%})"
            for name, change in worse_by(self.now, self.committed).items()
            if change > 0
        ]
        return f"{self.line.key}: {', '.join(parts)}"


def verdicts(
    now: Sequence[Line], committed: Committed, scorers: Sequence[str]
) -> list[Verdict]:
    """Return a verdict a line: those of today, and what some scorers had before."""
    before = {line.key: line for line in committed.lines if line.scorer in scorers}
    found = [Verdict(line, before.pop(line.key, None)) for line in now]
    gone = [Verdict(None, line) for line in before.values()]
    kinds = list(KINDS)
    return sorted([*found, *gone], key=lambda one: kinds.index(one.line.kind))


def predictors() -> dict[str, list[dict[str, Any]]]:
    """Return the figures of other predictors, by the key of their line."""
    found: dict[str, list[dict[str, Any]]]
    found = tomllib.loads(PREDICTORS.read_text(encoding="utf-8"))
    return found


def published(group: Group) -> list[Beside]:
    """Return the figures that others published for the rows of a group."""
    return [
        Beside(
            entry["name"],
            entry["statistic"],
            float(entry["value"]),
            statistic_of(group.logs, entry["statistic"]),
        )
        for entry in predictors().get(f"{group.kind}: {group.name}", [])
    ]
