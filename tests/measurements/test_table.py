"""Tables of measured rows: what is written is read back, and what is wrong is said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.measurements.rows import MEASURED, measured

from perfc.ir import Record, UsageError
from perfc.measurements import (
    MEASUREMENTS,
    WORKLOADS,
    Measurement,
    MeasurementError,
    RowWriter,
    WorkloadMeasurement,
    read_rows,
    read_usable_rows,
    write_rows,
)

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
ROW = measured("gemm", m=2, n=3, k=4)
HEADER = "target,op,dtype,params,latency_us,timing,source\n"
CELLS = {
    "target": ["cpu"],
    "op": ["gemm"],
    "dtype": ["fp32"],
    "params": ["{}"],
    "latency_us": [1.0],
    "timing": ["event"],
    "source": [""],
}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@given(rows=st.lists(MEASURED, max_size=4))
@settings(deadline=None, max_examples=40)
def test_rows_survive_a_file(
    rows: list[Measurement], suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever a row holds comes back from either kind of file."""
    path = tmp_path_factory.mktemp("rows") / f"rows{suffix}"

    write_rows(path, rows, MEASUREMENTS)

    assert rows == read_rows(path, MEASUREMENTS)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_workloads_survive_a_file(tmp_path: Path, suffix: str) -> None:
    """The other format is read and written by the same code."""
    row = WorkloadMeasurement(
        target="cpu",
        model="dlrm-default",
        params=Record({"tables": 8}),
        mode="training",
        runtime="eager",
        dtype="fp32",
        batch=512,
        time_us=1234.5,
        peak_memory_bytes=2**33,
        torch="2.13.0",
        split="test",
    )
    path = tmp_path / f"rows{suffix}"

    write_rows(path, [row], WORKLOADS)

    assert [row] == read_rows(path, WORKLOADS)


def test_a_table_that_a_spreadsheet_saved(tmp_path: Path) -> None:
    """Their UTF-8 begins with a byte order mark, which is no part of a name."""
    path = tmp_path / "rows.csv"
    write_rows(path, [ROW], MEASUREMENTS)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())

    assert [ROW] == read_rows(path, MEASUREMENTS)


def test_columns_of_others(tmp_path: Path) -> None:
    """Columns that the format lacks are left out, those that may be absent are."""
    path = tmp_path / "rows.csv"
    path.write_text(f"colour,{HEADER}red,h100,gemm,bf16,{{}},2.5,kernel,paper\n")

    (row,) = read_rows(path, MEASUREMENTS)

    assert ("h100", "gemm", 2.5, "kernel") == (
        row.target,
        row.op,
        row.latency_us,
        row.timing,
    )
    assert (None, "", "") == (row.p10_us, row.split, row.kernel)


def _csv(text: str) -> bytes:
    return (HEADER + text).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no column target, op, dtype, params, latency_us, timing, source: "),
        (b"target,op\ncpu,gemm\n", r"no column dtype, .*; found target, op$"),
        (_csv("cpu,gemm\n"), r"row 1: 2 cells, expected 7$"),
        (
            _csv("cpu,gemm,fp32,{},1,event,x\ncpu,gemm,fp32,{},soon,event,x\n"),
            r"row 2: latency_us is 'soon', expected a number not below 0$",
        ),
        (_csv("cpu,gemm,fp32,{},-1,event,x\n"), "row 1: latency_us is '-1'"),
        (_csv("cpu,gemm,fp32,{},nan,event,x\n"), "row 1: latency_us is 'nan'"),
        (_csv("cpu,gemm,fp32,{},,event,x\n"), "row 1: latency_us is missing"),
        (_csv("cpu,gemm,fp32,[],1,event,x\n"), r"params is '\[\]', expected a JSON ob"),
        (_csv("cpu,gemm,fp32,{,1,event,x\n"), "params is '{', expected a JSON object"),
        (_csv("cpu,gemm,fp32,{},1,guess,x\n"), "timing is 'guess', expected kernel, g"),
        (b"\xff\xfe", "not a CSV file: invalid start byte at byte 0"),
        (_csv('cpu,"gemm\n'), "not a CSV file: unexpected end of data"),
    ],
)
def test_a_wrong_csv(tmp_path: Path, content: bytes, message: str) -> None:
    """The error names the file, the row, the column, what is there and what may be."""
    path = tmp_path / "rows.csv"
    path.write_bytes(content)

    with pytest.raises(MeasurementError, match=rf"rows\.csv: .*{message}"):
        read_rows(path, MEASUREMENTS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latency_us": ["1.0s"]}, "row 1: latency_us is '1.0s', expected a number"),
        ({"op": [None]}, "row 1: op is missing, expected text"),
        ({"op": [3]}, "row 1: op is 3, expected text"),
        ({"n": [2.5]}, "row 1: n is 2.5, expected a whole number"),
        ({"throttled": ["maybe"]}, "throttled is 'maybe', expected true or false"),
        ({"split": ["train"]}, "split is 'train', expected nothing, fit, test"),
    ],
)
def test_wrong_parquet(
    tmp_path: Path, change: dict[str, list[object]], message: str
) -> None:
    """Typed cells of the wrong type are named as those of text are."""
    path = tmp_path / "rows.parquet"
    parquet.write_table(arrow.table({**CELLS, **change}), path)

    with pytest.raises(MeasurementError, match=message):
        read_rows(path, MEASUREMENTS)


def test_a_table_of_another_format(tmp_path: Path) -> None:
    """A file that says it is of another format is not read as this one."""
    path = tmp_path / "rows.parquet"
    write_rows(path, [ROW], MEASUREMENTS)

    with pytest.raises(
        MeasurementError, match=r"in perfc\.measurements/1, expected perfc\.workloads/1"
    ):
        read_rows(path, WORKLOADS)


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    """Half a file is an error, not half a table."""
    path = tmp_path / "rows.parquet"
    write_rows(path, [ROW] * 50, MEASUREMENTS)
    path.write_bytes(path.read_bytes()[:-20])

    with pytest.raises(MeasurementError, match="cannot be read as a Parquet file"):
        read_rows(path, MEASUREMENTS)


def test_names_of_files(tmp_path: Path) -> None:
    """A file that is not there, a folder, and a name that says nothing."""
    with pytest.raises(MeasurementError, match=r"cannot read .*: No such file"):
        read_rows(tmp_path / "rows.csv", MEASUREMENTS)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(MeasurementError, match=r"cannot read .*: Is a directory"):
        read_rows(tmp_path / "folder.csv", MEASUREMENTS)
    with pytest.raises(UsageError, match=r"ends in \.parquet or \.csv"):
        write_rows(tmp_path / "rows.txt", [ROW], MEASUREMENTS)


def test_parquet_without_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes before anything is measured, and says what works."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(MeasurementError, match=r"pip install 'perfc\[measure\]', or"):
        RowWriter(tmp_path / "rows.parquet", MEASUREMENTS)

    write_rows(tmp_path / "rows.csv", [ROW], MEASUREMENTS)
    assert [ROW] == RowWriter(tmp_path / "rows.csv", MEASUREMENTS).rows


def test_rows_that_cannot_be_read_are_counted_by_reason(tmp_path: Path) -> None:
    """The others are as in a table without them; equal mistakes are one reason."""
    path = tmp_path / "rows.csv"
    good = 'cpu,gemm,fp32,"{""m"": 2}",1.5,event,here\n'
    bad = (
        "cpu,gemm,fp32,{bad,1.5,event,here\n"
        "cpu,gemm,fp32,[],1.5,event,here\n"
        "cpu,gemm,fp32,{},abc,event,here\n"
        "cpu,gemm,fp32,{},-1,event,here\n"
        "cpu,gemm,fp32,{},,event,here\n"
        "cpu,gemm,fp32,{},1.5,clock,here\n"
    )
    path.write_text(HEADER + good + bad + good, encoding="utf-8")

    rows, unread = read_usable_rows(path, MEASUREMENTS)

    path.write_text(HEADER + good + good, encoding="utf-8")
    assert read_rows(path, MEASUREMENTS) == rows
    assert {
        "params is not a JSON object": 2,
        "latency_us is not a number not below 0": 2,
        "latency_us is missing": 1,
        "timing is not kernel, graph, event, nccl, host": 1,
    } == unread


@pytest.mark.parametrize("cell", [{"m": 2}, [1, 2]])
def test_structures_of_parquet_are_no_text(tmp_path: Path, cell: object) -> None:
    """Parameters are JSON in a column of text, which is said of a row."""
    path = tmp_path / "rows.parquet"
    parquet.write_table(arrow.table(CELLS | {"params": [cell]}), path)

    rows, unread = read_usable_rows(path, MEASUREMENTS)

    assert ([], {"params is not a JSON object": 1}) == (rows, unread)
    with pytest.raises(MeasurementError, match=r"row 1: params is .* JSON"):
        read_rows(path, MEASUREMENTS)


def test_reading_beside_torch(tmp_path: Path) -> None:
    """A process that imported torch first ends as it should."""
    pytest.importorskip("torch")
    path = tmp_path / "rows.parquet"
    write_rows(path, [ROW], MEASUREMENTS)
    code = (
        "import sys, torch\n"
        "from perfc.measurements import MEASUREMENTS, read_rows\n"
        "print(len(read_rows(sys.argv[1], MEASUREMENTS)))\n"
    )

    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, check=False, text=True)

    assert (0, "1\n") == (done.returncode, done.stdout)
