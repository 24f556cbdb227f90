"""Compare perfc's own speed with what is committed: `ratios.py [--quick] [--write]`.

Times are CPU times and ratios, each measured in one run with what it is divided by, the
least of many repetitions: other programs and other machines change them little. What is
more than a tenth above the value in `ratios.json`, and is so when measured again, is
WORSE, and the exit code is 1.
`--write` writes that file from what is now; `--quick` leaves out what takes longest.

A change that makes something worse either mends it, or says why under the measure's
name in `notes` of `ratios.json`, which is printed and kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
from speed import ratio_measures

COMMITTED = Path(__file__).with_suffix(".json")
TENTH = 0.1
DIGITS = 4
WORSE, BETTER = "WORSE", "better"


@attrs.frozen
class Ratios:
    """Values by the name of the measure, the machine, and why some are worse."""

    machine: str = ""
    values: Mapping[str, float | None] = attrs.field(factory=dict[str, float | None])
    notes: Mapping[str, str] = attrs.field(factory=dict[str, str])

    @classmethod
    def read(cls, path: Path) -> Ratios:
        """Read what was written; nothing where no file is."""
        if not path.exists():
            return cls()
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def least(self, again: Mapping[str, float | None]) -> Ratios:
        """Return the lesser of two measurements each: neighbours only lengthen."""
        pairs = {name: (value, again[name]) for name, value in self.values.items()}
        known = {k: [v for v in pair if v is not None] for k, pair in pairs.items()}
        values = {name: min(found, default=None) for name, found in known.items()}
        return attrs.evolve(self, values=values)

    def write(self, path: Path) -> None:
        """Write the same file for the same values, whatever their order."""
        values = {name: rounded(value) for name, value in self.values.items()}
        content = attrs.asdict(attrs.evolve(self, values=values))
        text = json.dumps(content, indent=2, sort_keys=True)
        path.write_text(text + "\n", encoding="utf-8")


@attrs.frozen
class Row:
    """One measure now and as committed; less is better."""

    name: str
    unit: str
    now: float | None
    committed: float | None
    elsewhere: bool = False
    """Whether the committed value is of another machine."""

    @property
    def change(self) -> float | None:
        """How much more than committed, as a fraction; None without both."""
        if self.now is None or self.committed is None:
            return None
        return self.now / self.committed - 1

    @property
    def verdict(self) -> str:
        """What to do about it: nothing where the word is empty."""
        if self.now is None:
            return "not measured"
        if self.change is None:
            return "new"
        if self.unit == "ms" and self.elsewhere:
            return "of another machine"
        if self.change > TENTH:
            return WORSE
        return BETTER if self.change < -TENTH else ""


def rows(now: Ratios, committed: Ratios, units: Mapping[str, str]) -> list[Row]:
    """Return every measure that is known or committed, by name."""
    return [
        Row(
            name,
            units.get(name, ""),
            now.values.get(name),
            committed.values.get(name),
            elsewhere=now.machine != committed.machine,
        )
        for name in sorted({*units, *committed.values})
    ]


def table(measures: Sequence[Row]) -> str:
    """Return lines of name, value now, committed value, change, verdict."""
    lines = [_line("", "now", "committed", "unit", "change", "")]
    for row in measures:
        change = "" if row.change is None else f"{row.change:+.1%}"
        values = shown(row.now), shown(row.committed)
        lines.append(_line(row.name, *values, row.unit, change, row.verdict))
    return "\n".join(lines)


def _line(name: str, *cells: str) -> str:
    now, committed, unit, change, verdict = cells
    text = f"{name:<42} {now:>10} {committed:>10} {unit:<8} {change:>8}  {verdict}"
    return text.rstrip()


def rounded(value: float | None) -> float | None:
    """Return four digits of a ratio, and all of a count."""
    if value is None or isinstance(value, int):
        return value
    return float(f"{value:.{DIGITS}g}")


def shown(value: float | None) -> str:
    """Return a value as the table has it."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.{DIGITS}g}"


def compare(now: Ratios, path: Path, units: Mapping[str, str], *, write: bool) -> int:
    """Print the table and the notes; return 1 if something is worse.

    With *write*, *path* gets the values instead and the notes that still have a name.
    """
    committed = Ratios.read(path)
    measures = rows(now, committed, units)
    print(f"now: {now.machine}\ncommitted: {committed.machine or 'nothing'}\n")
    print(table(measures))
    for name, note in sorted(committed.notes.items()):
        print(f"note, {name}: {note}")
    if write:
        notes = {k: note for k, note in committed.notes.items() if k in now.values}
        attrs.evolve(now, notes=notes).write(path)
        return 0
    return int(any_worse(measures))


def any_worse(measures: Sequence[Row]) -> bool:
    """Say whether a measure is worse than committed by more than a tenth."""
    return any(row.verdict == WORSE for row in measures)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and compare or write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="skip what takes longest")
    parser.add_argument("--write", action="store_true", help="write ratios.json")
    args = parser.parse_args(arguments)
    if args.quick and args.write:
        parser.error("--write wants every value, --quick leaves some out")
    units = ratio_measures.units()
    now = Ratios(ratio_measures.machine(), ratio_measures.measured(quick=args.quick))
    if not args.write and any_worse(rows(now, Ratios.read(COMMITTED), units)):
        print("some are worse: measuring again", file=sys.stderr)
        now = now.least(ratio_measures.measured(quick=args.quick))
    return compare(now, COMMITTED, units, write=args.write)


if __name__ == "__main__":
    sys.exit(main())
