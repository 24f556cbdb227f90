"""Rows are kept while they come: a kill loses none, and another sweep gets none."""

from __future__ import annotations

import csv
import importlib
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import perfc
from perfc.tools.sweeping import Progress

MODEL = "dlrm-ddp:tables=2,rows=1000"
VARY: dict[str, Any] = {"batch": range(64, 304), "dtype": ["fp32"]}
FORMS = ("csv", "parquet", "json", "html")
_WAIT_S = 60


def _sweep(path: Path, **options: Any) -> perfc.Sweep:
    return perfc.sweep(MODEL, "a100", VARY, output=path, **options)


@pytest.fixture(scope="module")
def whole() -> list[dict[str, Any]]:
    """Return the rows of a sweep that nothing interrupts."""
    return [*perfc.sweep(MODEL, "a100", VARY).rows]


def _journal(path: Path) -> Path:
    kept = path.suffix in {".csv", ".parquet"}
    return path.with_name(f"{path.name}{'' if kept else '.csv'}.part.csv")


def _rows(path: Path) -> list[dict[str, Any]]:
    """Read a file as other programs do."""
    if path.suffix == ".parquet":
        parquet = importlib.import_module("pyarrow.parquet")
        found: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
        return found
    text = path.read_text("utf-8")
    if path.suffix == ".csv":
        return [*csv.DictReader(text.splitlines())]
    if path.suffix == ".html":
        text = text.partition('id="perfc-sweep">')[2].partition("</script>")[0]
    rows: list[dict[str, Any]] = json.loads(text)["rows"]
    return rows


_SLOW = """
import signal, sys, time
from perfc.tools.cli import command_line
from perfc.tools.sweeping.result_file import ResultFile

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
append = ResultFile.append

def slow(file, rows):
    for row in rows:
        append(file, [row])
        if len(file.rows) == 20:
            print("enough", file=sys.stderr, flush=True)
            time.sleep(600)

ResultFile.append = slow
sys.exit(command_line.main(sys.argv[1:]))
"""


def _killed(path: Path, number: int, executor: str = "local:1") -> int:
    """Begin a sweep, end it by a signal once it has rows; return its exit code."""
    words = ["--target", "a100", "--vary", "batch=64:303:1", "--vary", "dtype=fp32"]
    run = [sys.executable, "-c", _SLOW, "sweep", MODEL, *words, "-q"]
    with subprocess.Popen(
        [*run, "--executor", executor, "-o", str(path)],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert "enough\n" == process.stderr.readline()
        process.send_signal(number)
        try:
            process.communicate(timeout=_WAIT_S)
        finally:
            process.kill()
    return process.returncode


@pytest.mark.parametrize("form", FORMS)
def test_a_kill_loses_no_row(
    tmp_path: Path, form: str, whole: Sequence[dict[str, Any]]
) -> None:
    """After `kill -9` a sweep goes on behind the rows that it had."""
    path = tmp_path / f"rows.{form}"
    code = _killed(path, signal.SIGKILL)
    left = len(_journal(path).read_bytes().splitlines()) - 1
    told: list[Progress] = []
    swept = _sweep(path, resume=True, progress=told.append)

    assert -signal.SIGKILL == code
    assert 0 < left < len(whole)
    assert told[0].done in {left, left - 1}  # the last line may be torn
    assert len(whole) - told[0].done == told[-1].new
    assert [*whole] == [*swept.rows]
    assert [path] == [*tmp_path.iterdir()]


@pytest.mark.parametrize("form", ["csv", "html"])
def test_an_interrupt_writes_what_there_is(
    tmp_path: Path, form: str, whole: Sequence[dict[str, Any]]
) -> None:
    """Ctrl-C leaves a file with the rows so far, which `--resume` goes on with."""
    path = tmp_path / f"rows.{form}"
    code = _killed(path, signal.SIGINT, "local:2")
    there = _rows(path)

    assert 130 == code
    assert 0 < len(there) < len(whole)
    assert [path] == [*tmp_path.iterdir()]
    assert [*whole] == [*_sweep(path, resume=True).rows]


@pytest.mark.parametrize("form", FORMS)
def test_a_finished_file_is_read_back(
    tmp_path: Path, form: str, whole: Sequence[dict[str, Any]]
) -> None:
    """To the last digit, and without pricing anything; the file stays the same."""
    path, told = tmp_path / f"rows.{form}", list[Progress]()
    _sweep(path)
    before = path.read_bytes()
    swept = _sweep(path, resume=True, progress=told.append)

    assert [*whole] == [*swept.rows]
    assert [] == told
    assert before == path.read_bytes()
    assert [str(row["batch"]) for row in whole] == [
        str(row["batch"]) for row in _rows(path)
    ]


@pytest.mark.parametrize("form", FORMS)
def test_a_file_of_another_sweep_is_left_alone(tmp_path: Path, form: str) -> None:
    """Of other values, options or metrics, of none, or when nobody asked to go on."""
    path = tmp_path / f"rows.{form}"
    vary = {"batch": [64, 128]}
    perfc.sweep(MODEL, "a100", vary, output=path)
    before = path.read_bytes()

    others: Sequence[tuple[str, dict[str, list[int]], dict[str, Any]]] = (
        ("a100", {"batch": [64, 256]}, {}),
        ("a100", vary, {"mode": "training"}),
        ("a100", vary, {"metric": "flops"}),
        ("a100", vary, {"overrides": {"gpu.sm_clock_mhz": 900}}),
        ("t4", vary, {}),
    )
    for target, other, options in others:
        with pytest.raises(perfc.PerfcError, match=r"another sweep|no result of this"):
            perfc.sweep(MODEL, target, other, output=path, resume=True, **options)
    with pytest.raises(perfc.PerfcError, match="is there: --resume goes on with it"):
        perfc.sweep(MODEL, "a100", vary, output=path)
    assert before == path.read_bytes()
    assert [path] == [*tmp_path.iterdir()]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\x00", b"a,b\n1,2\n", b"{}", b"[1]"]
)
def test_a_file_of_something_else(tmp_path: Path, form: str, content: bytes) -> None:
    """It is refused in one line, and stays as it is."""
    path = tmp_path / f"rows.{form}"
    path.write_bytes(content)

    with pytest.raises(perfc.PerfcError) as refused:
        _sweep(path, resume=True)

    assert "no result of this sweep" in str(refused.value)
    assert 1 == len(str(refused.value).splitlines())
    assert content == path.read_bytes()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """It is said before anything is priced."""
    told: list[Progress] = []

    with pytest.raises(perfc.PerfcError, match="cannot write"):
        _sweep(tmp_path / "missing" / "rows.csv", progress=told.append)
    assert [] == told


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        ("time_us", None),
        ("bound", None),
        ("batch", ["64", "64"]),
        ("batch", ["64", "65"]),
        ("time_us", ["nan", "1"]),
        ("batch", ["9" * 400, "128"]),
    ],
)
@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_damaged_file_of_the_same_sweep(
    tmp_path: Path, form: str, column: str, cells: list[str] | None
) -> None:
    """A column that is missing, a row that is there twice or of no configuration."""
    path, vary = tmp_path / f"rows.{form}", {"batch": [64, 128]}
    perfc.sweep(MODEL, "a100", vary, output=path)
    rows = _rows(path)
    for row, cell in zip(rows, cells or ["", ""], strict=True):
        row[column] = cell
        if cells is None:
            del row[column]
        elif form == "json":
            row[column] = json.loads(cell.replace("nan", "NaN"))
    if form == "csv":
        with path.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, [*rows[0]])
            writer.writeheader()
            writer.writerows(rows)
    else:
        document = json.loads(path.read_text("utf-8"))
        path.write_text(json.dumps({**document, "rows": rows}), encoding="utf-8")

    with pytest.raises(perfc.PerfcError, match="name another file, or remove it"):
        perfc.sweep(MODEL, "a100", vary, output=path, resume=True)
