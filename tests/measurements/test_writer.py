"""A table that grows loses no row, however its writer ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.measurements.rows import measured

from perfc.ir import PerfcError
from perfc.measurements import (
    MEASUREMENTS,
    Measurement,
    MeasurementError,
    RowWriter,
    read_rows,
    write_rows,
)

KILLED = """
import os, signal, sys
from pathlib import Path
from perfc.ir import Record
from perfc.measurements import MEASUREMENTS, Measurement, RowWriter

writer = RowWriter(Path(sys.argv[1]), MEASUREMENTS)
for m in range(3):
    writer.append([
        Measurement(target="cpu", op="gemm", dtype="fp32", params=Record({"m": m}),
                    latency_us=1.0, timing=timing, source="a test")
        for timing in ("event", "graph")
    ])
os.kill(os.getpid(), signal.SIGKILL)
"""


def _rows(count: int) -> list[Measurement]:
    return [measured("gemm", m=m) for m in range(count)]


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_a_kill_loses_no_row(tmp_path: Path, name: str) -> None:
    """What was appended before `kill -9` is there when the table is opened again."""
    path = tmp_path / name
    arguments = [sys.executable, "-c", KILLED, str(path)]
    done = subprocess.run(arguments, check=False)
    assert -signal.SIGKILL == done.returncode

    writer = RowWriter(path, MEASUREMENTS)
    writer.append([measured("gemm", m=9)])
    writer.flush()

    rows = read_rows(path, MEASUREMENTS)
    assert [0, 0, 1, 1, 2, 2, 9] == [row.params["m"] for row in rows]
    assert [path] == list(tmp_path.iterdir())


def test_an_interrupt_while_rows_are_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that the journal has and the list has not yet get into the table."""
    path = tmp_path / "rows.csv"
    writer = RowWriter(path, MEASUREMENTS)

    def interrupt(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        writer.append(_rows(1))
    monkeypatch.undo()
    writer.flush()

    assert _rows(1) == read_rows(path, MEASUREMENTS)
    assert [path] == list(tmp_path.iterdir())


def test_a_torn_line_is_dropped(tmp_path: Path) -> None:
    """Half a line at the end of the journal is the row that was being written."""
    path = tmp_path / "rows.parquet"
    writer = RowWriter(path, MEASUREMENTS)
    writer.append(_rows(2))
    writer.append([measured("softmax", rows=1, cols=1)])
    whole = writer.journal.read_bytes()
    writer.journal.write_bytes(whole[:-7])

    again = RowWriter(path, MEASUREMENTS)
    again.append([measured("layer_norm", rows=1, cols=1)])
    again.flush()

    assert ["gemm", "gemm", "layer_norm"] == [row.op for row in again.rows]
    assert again.rows == read_rows(path, MEASUREMENTS)


def test_a_kill_between_table_and_journal(tmp_path: Path) -> None:
    """A journal whose rows the table has already adds none of them twice."""
    path = tmp_path / "rows.csv"
    writer = RowWriter(path, MEASUREMENTS)
    writer.append(_rows(2))
    journal = writer.journal.read_bytes()
    writer.flush()
    writer.journal.write_bytes(journal)

    assert _rows(2) == RowWriter(path, MEASUREMENTS).rows


class _Killed(BaseException):
    """What ends a writer in the middle of something."""


def _of_m(row: Measurement) -> object:
    return row.params["m"]


def _replaced(path: Path, rows: list[Measurement], new: Measurement) -> Iterator[str]:
    """Write rows, then a new one in the place of the first, with a break at each step.

    What has been asked for so far is yielded.
    """
    writer = RowWriter(path, MEASUREMENTS, _of_m)
    writer.append(rows)
    yield "old"
    writer.flush()
    yield "old"
    writer.append([new])
    yield "new"
    writer.flush()
    yield "new"


_FILES = (
    (os, "fsync"),  # a row is in the journal
    (Path, "replace"),  # the table is written
    (Path, "unlink"),  # and then the journal removed
)


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
@pytest.mark.parametrize("first", [False, True], ids=["after", "before"])
@pytest.mark.parametrize("count", range(12))
def test_a_kill_while_a_row_is_replaced(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    count: int,
    *,
    first: bool,
) -> None:
    """Before and after each step on the disk: one row or the other, and never both."""
    path, (old, other) = tmp_path / name, _rows(2)
    new = attrs.evolve(old, latency_us=9.0)
    left = count

    def killing(step: Callable[..., object]) -> Callable[..., object]:
        def run(*arguments: Any, **options: Any) -> object:
            nonlocal left
            left -= 1
            if left < 0 and first:
                raise _Killed
            done = step(*arguments, **options)
            if left < 0:
                raise _Killed
            return done

        return run

    for holder, step in _FILES:
        monkeypatch.setattr(holder, step, killing(getattr(holder, step)))
    asked = ""
    with suppress(_Killed):
        for asked in _replaced(path, [old, other], new):  # noqa: B007 - the last counts
            pass
    monkeypatch.undo()
    again = RowWriter(path, MEASUREMENTS, _of_m)
    found = again.rows
    again.flush()

    expected = {"": [[], [old, other]], "old": [[old, other], [new, other]]}
    assert found in expected.get(asked, [[new, other]])
    assert found == read_rows(path, MEASUREMENTS) if found else not path.exists()
    assert not again.journal.exists()


def test_a_row_that_is_replaced_and_torn(tmp_path: Path) -> None:
    """Half a line of the new row leaves the old one, wherever that is."""
    path, (old, other) = tmp_path / "rows.csv", _rows(2)
    for flushed in (False, True):
        writer = RowWriter(path, MEASUREMENTS, _of_m)
        writer.append([old, other])
        if flushed:
            writer.flush()
        writer.append([attrs.evolve(old, latency_us=9.0)])
        writer.journal.write_bytes(writer.journal.read_bytes()[:-7])

        assert [old, other] == RowWriter(path, MEASUREMENTS, _of_m).rows
        writer.journal.unlink()


def test_a_journal_that_came_back(tmp_path: Path) -> None:
    """A lost machine may undo that it was removed: the table's rows are not older."""
    path, (old, other) = tmp_path / "rows.csv", _rows(2)
    new = attrs.evolve(old, latency_us=9.0)
    writer = RowWriter(path, MEASUREMENTS, _of_m)
    writer.append([old, other])
    writer.append([new])
    journal = writer.journal.read_bytes()
    writer.flush()
    writer.journal.write_bytes(journal)

    assert [new, other] == RowWriter(path, MEASUREMENTS, _of_m).rows


def test_rows_with_one_key_in_a_table_are_all_kept(tmp_path: Path) -> None:
    """The first is replaced: a file that was put together of two loses no row."""
    path, (old,) = tmp_path / "rows.csv", _rows(1)
    rows = [attrs.evolve(old, latency_us=us) for us in (1.0, 2.0, 2.0)]
    write_rows(path, rows, MEASUREMENTS)
    writer = RowWriter(path, MEASUREMENTS, _of_m)
    assert rows == writer.rows

    new = attrs.evolve(old, latency_us=9.0)
    writer.append([new])
    writer.flush()
    assert [new, *rows[1:]] == read_rows(path, MEASUREMENTS)


def test_a_header_that_was_torn(tmp_path: Path) -> None:
    """A journal that never got its first line is an empty one."""
    path = tmp_path / "rows.csv"
    writer = RowWriter(path, MEASUREMENTS)
    writer.journal.write_bytes(b"target,op,dt")

    again = RowWriter(path, MEASUREMENTS)
    again.append(_rows(1))
    again.flush()

    assert _rows(1) == read_rows(path, MEASUREMENTS)


def test_nothing_measured_writes_nothing(tmp_path: Path) -> None:
    """No row, no file."""
    RowWriter(tmp_path / "rows.csv", MEASUREMENTS).flush()

    assert [] == list(tmp_path.iterdir())


def test_a_table_of_something_else(tmp_path: Path) -> None:
    """A file that is no table of this format is refused, and left as it is."""
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")

    with pytest.raises(MeasurementError, match="no column target"):
        RowWriter(path, MEASUREMENTS)

    assert "a,b\n1,2\n" == path.read_text()


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written stays, and the error says how many rows that are."""
    path = tmp_path / "rows.csv"
    writer = RowWriter(path, MEASUREMENTS)
    writer.append(_rows(2))

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        PerfcError, match=r"No space left on device; 2 rows are kept, .* continues$"
    ):
        writer.append([attrs.evolve(_rows(1)[0], op="softmax")])
    monkeypatch.undo()

    assert _rows(2) == RowWriter(path, MEASUREMENTS).rows[:2]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """Opening the table tells, before time is spent on a row."""
    with pytest.raises(PerfcError, match="No such file or directory; 0 rows are kept"):
        RowWriter(tmp_path / "absent" / "rows.csv", MEASUREMENTS)

    assert [] == list(tmp_path.iterdir())
