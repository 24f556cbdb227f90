"""Rows written while they are measured, so that a kill loses none."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Generic

import attrs

from perfc.ir import PerfcError
from perfc.measurements.schema import Row, Schema
from perfc.measurements.table import check_name, read_rows, write_rows

JOURNAL = ".part.csv"
"""Added to the name of the table: rows that are not in it yet."""


def _itself(row: object) -> Hashable:
    return row


@attrs.define
class RowWriter(Generic[Row]):
    """A table that grows; the rows that it had are kept.

    Rows are appended to a journal beside the table, `NAME.part.csv`, and flushed to
    the disk at once. `flush` writes the table anew, in one step, and ends the journal.
    A journal that was left behind is read when the same table is opened again.

    A row takes the place of an earlier one with its key. The journal has both, the
    later one last: reading it again, also into a table that has its rows already, ends
    with the same rows, so that a kill at any moment leaves the one or the other.

    Attributes:
        path: The table.
        schema: Its format.
        key: Tells rows of different things apart; a row itself if not given.
        place: Where a row stands in the table; as they came if not given.

    """

    path: Path
    schema: Schema[Row]
    key: Callable[[Row], Hashable] = _itself
    place: Callable[[Row], int] | None = None
    _held: dict[Hashable, Row] = attrs.field(factory=dict[Hashable, Row], init=False)

    def __attrs_post_init__(self) -> None:
        """Read what is there."""
        check_name(self.path)
        if self.path.exists():
            self._hold(read_rows(self.path, self.schema))
        self._recover()
        # Find out before anything is measured whether rows can be written at all.
        there = self.journal.exists()
        try:
            self.journal.open("ab").close()
            if not there:
                self.journal.unlink()
        except OSError as error:
            raise self._failed(error) from None

    @property
    def rows(self) -> list[Row]:
        """What it holds, journal included, in order."""
        held = list(self._held.values())
        return held if self.place is None else sorted(held, key=self.place)

    def _hold(self, rows: Iterable[Row]) -> None:
        """Take over the rows of the table: all, also where two have the same key."""
        seen: Counter[Hashable] = Counter()
        for row in rows:
            key = self.key(row)
            self._held[key, seen[key]] = row
            seen[key] += 1

    def _take(self, rows: Iterable[Row]) -> None:
        """Add rows behind the others, or in the place of the first with their key."""
        for row in rows:
            self._held[self.key(row), 0] = row

    @property
    def journal(self) -> Path:
        """Path of the rows that are not in the table yet."""
        return self.path.with_name(self.path.name + JOURNAL)

    def _recover(self) -> None:
        """Take the rows of a journal over; its last line may be torn."""
        if not self.journal.exists():
            return
        try:
            data = self.journal.read_bytes()
            whole = data[: data.rfind(b"\n") + 1]
            if whole != data:
                self.journal.write_bytes(whole)
        except OSError as error:
            raise self._failed(error) from None
        # The table may have been written, and the journal not removed: rows that it has
        # take their own place.
        if whole:
            self._take(read_rows(self.journal, self.schema))

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows that belong together: after a kill all of them are there, or none.

        One with the key of an earlier row takes its place.
        """
        try:
            with self.journal.open("ab") as stream:
                header = stream.tell() == 0
                stream.write(self.schema.csv(rows, header=header))
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise self._failed(error) from None
        self._take(rows)

    def flush(self) -> None:
        """Write the table, and remove the journal."""
        # An interrupt may have come when the journal had rows that the list had not.
        self._recover()
        if self._held:
            try:
                write_rows(self.path, self.rows, self.schema)
            except PerfcError as error:
                msg = f"{error}; {self._kept}"
                raise PerfcError(msg) from None
        self.journal.unlink(missing_ok=True)

    def _failed(self, error: OSError) -> PerfcError:
        reason = error.strerror or error
        return PerfcError(f"cannot write {self.journal}: {reason}; {self._kept}")

    @property
    def _kept(self) -> str:
        return f"{len(self._held)} rows are kept, the same command continues"
