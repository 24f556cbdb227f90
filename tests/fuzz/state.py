"""What `make fuzz` has tried so far, kept so that an interruption loses nothing."""

from __future__ import annotations

import collections
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import attrs

SOURCES = (
    *(
        "costmodels",
        "exporters",
        "fitting",
        "frontends",
        "ir",
        "measurements",
        "passes",
    ),
    *("planning", "tools", "traces", "tests/fuzz"),
)
"""Folders whose files decide what becomes of an input."""


@attrs.define(eq=False)
class Tally:
    """What came of the inputs so far; shared by the threads.

    Attributes:
        total: How many inputs there are in all.
        below: All inputs below this number are done.
        ahead: Numbers of others that are done.
        slowest_s: What the slowest took.
        slowest: Its number.
        codes: How often commands ended with each exit code.
        failures: Number and problem of each input that failed.

    """

    total: int
    below: int = 0
    ahead: set[int] = attrs.field(factory=set[int])
    slowest_s: float = 0.0
    slowest: int = -1
    codes: collections.Counter[int] = attrs.field(factory=collections.Counter[int])
    failures: list[tuple[int, str]] = attrs.field(factory=list[tuple[int, str]])
    lock: Lock = attrs.field(factory=Lock)

    @property
    def done(self) -> int:
        """How many inputs are done."""
        return self.below + len(self.ahead)

    def left(self) -> Iterator[int]:
        """Yield the numbers that are not done, in order."""
        done = frozenset(self.ahead)
        return (n for n in range(self.below, self.total) if n not in done)

    def add(self, number: int, answer: dict[str, Any]) -> None:
        """Count one answer."""
        with self.lock:
            self.ahead.add(number)
            while self.below in self.ahead:
                self.ahead.remove(self.below)
                self.below += 1
            self.codes[answer["code"]] += 1
            if answer["seconds"] > self.slowest_s:
                self.slowest_s, self.slowest = answer["seconds"], number
            if answer["problem"]:
                self.failures.append((number, answer["problem"]))

    def line(self) -> str:
        """Say how far it is."""
        codes = ", ".join(f"exit {c}: {n}" for c, n in sorted(self.codes.items()))
        return (
            f"{self.done}/{self.total} inputs, {len(self.failures)} failures, "
            f"slowest {self.slowest_s:.2f} s: number {self.slowest} ({codes})"
        )


@attrs.frozen
class State:
    """The file that a tally is kept in.

    Attributes:
        path: Where.
        key: Seed and sources: another key is another run.

    """

    path: Path
    key: str

    @classmethod
    def of(cls, folder: Path, root: Path, seed: int) -> State:
        """Return the state of a seed, for the sources as they are."""
        found = hashlib.sha256()
        for name in SOURCES:
            for path in sorted((root / name).rglob("*.py")):
                found.update(path.read_bytes())
        return cls(folder / f"state-{seed}.json", f"{seed}/{found.hexdigest()}")

    def load(self, total: int) -> Tally:
        """Return what was tried before with this key, or an empty tally."""
        if not self.path.exists():
            return Tally(total)
        kept: Any = json.loads(self.path.read_text(encoding="utf-8"))
        if kept["key"] != self.key:
            return Tally(total)
        codes = {int(code): count for code, count in kept["codes"].items()}
        return Tally(
            total,
            kept["below"],
            set(kept["ahead"]),
            kept["slowest_s"],
            kept["slowest"],
            collections.Counter(codes),
            [(number, problem) for number, problem in kept["failures"]],
        )

    def save(self, tally: Tally) -> None:
        """Keep a tally; a reader never sees half of it."""
        with tally.lock:
            content = {
                "key": self.key,
                "below": tally.below,
                "ahead": sorted(tally.ahead),
                "slowest_s": tally.slowest_s,
                "slowest": tally.slowest,
                "codes": tally.codes,
                "failures": tally.failures,
            }
            text = json.dumps(content)
        self.path.parent.mkdir(exist_ok=True)
        half = self.path.with_suffix(".part")
        half.write_text(text, encoding="utf-8")
        half.replace(self.path)
