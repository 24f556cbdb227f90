"""A table that grows loses no row, however its writer ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

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
    done = subprocess.run(arguments, check=False)  # noqa: S603 - our own arguments
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
