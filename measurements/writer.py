"""Rows written while they are measured, so that a kill loses none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Generic

import attrs

from perfc.ir import PerfcError
from perfc.measurements.schema import Row, Schema
from perfc.measurements.table import check_name, csv_of, read_rows, write_rows

JOURNAL = ".part.csv"
"""Added to the name of the table: rows that are not in it yet."""


@attrs.define
class RowWriter(Generic[Row]):
    """A table that grows; the rows that it had are kept.

    Rows are appended to a journal beside the table, `NAME.part.csv`, and flushed to
    the disk at once. `flush` writes the table anew, in one step, and ends the journal.
    A journal that was left behind is read when the same table is opened again.

    Attributes:
        path: The table.
        schema: Its format.
        rows: What it holds, journal included, in order.

    Raises:
        UsageError: the name ends neither in .parquet nor in .csv.
        PerfcError: the table or its journal cannot be read, or rows not be written.

    """

    path: Path
    schema: Schema[Row]
    rows: list[Row] = attrs.field(factory=list[Row], init=False)

    def __attrs_post_init__(self) -> None:
        """Read what is there."""
        check_name(self.path)
        if self.path.exists():
            self.rows = read_rows(self.path, self.schema)
        self._recover()
        self._probe()

    @property
    def journal(self) -> Path:
        """Where rows are that are not in the table yet."""
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
        # The table was written, and then the journal not yet removed: not twice.
        known = set(self.rows)
        if whole:
            found = read_rows(self.journal, self.schema)
            self.rows += [row for row in found if row not in known]

    def _probe(self) -> None:
        """Find out before anything is measured whether rows can be written at all."""
        there = self.journal.exists()
        try:
            self.journal.open("ab").close()
            if not there:
                self.journal.unlink()
        except OSError as error:
            raise self._failed(error) from None

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows that belong together: after a kill all of them are there, or none.

        Raises:
            PerfcError: the disk is full, or the folder cannot be written.

        """
        try:
            with self.journal.open("ab") as stream:
                header = stream.tell() == 0
                stream.write(csv_of(rows, self.schema, header=header))
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise self._failed(error) from None
        self.rows += rows

    def flush(self) -> None:
        """Write the table, and remove the journal.

        Raises:
            PerfcError: the table cannot be written; the journal then stays.

        """
        # An interrupt may have come when the journal had rows that the list had not.
        self._recover()
        if self.rows:
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
        return f"{len(self.rows)} rows are kept, the same command continues"
