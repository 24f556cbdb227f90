"""Small files that claim much, or are damaged, are refused in one line, and soon."""

from __future__ import annotations

import importlib
import io
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.measurements.nccl_logs import nccl_log

from perfc.ir import PerfcError
from perfc.ir.support import BudgetError, raised_budgets
from perfc.measurements import (
    MEASUREMENTS,
    MeasurementError,
    kernel_of,
    read_columns,
    read_index_trace,
    read_nccl_log,
    read_rows,
)

_SOON_S = 20.0
"""What grew with a square, or was made room for, took minutes."""


def _npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    text = f"{header}\n".encode()
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + data


def _shape(shape: str, descr: str = "'<i8'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


@pytest.mark.parametrize(
    ("header", "error"),
    [
        (_shape("(1000000000000000000,)"), BudgetError),
        (_shape("(1000000000, 0)"), BudgetError),
        (_shape("(4294967296, 4294967296)"), BudgetError),
        (_shape("(-1,)"), PerfcError),
        (_shape("(5,)"), PerfcError),
        (_shape("(1,)", "'|O'"), PerfcError),
        (_shape("(1,)", "'<Z9'"), PerfcError),
        (_shape("(" + "1," * 200 + ")"), PerfcError),
        ("{'descr': (((", PerfcError),
        ("[" * 3000, PerfcError),
        ("", PerfcError),
    ],
)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_headers_of_arrays(
    tmp_path: Path, header: str, error: type[PerfcError], suffix: str
) -> None:
    """No header makes room for numbers that are not there, or raises its own error."""
    path, begun_s = tmp_path / f"t{suffix}", time.process_time()
    path.write_bytes(_npy(header))
    if suffix == ".npz":
        data = path.read_bytes()
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("indices.npy", data)
    with pytest.raises(error) as caught:
        read_index_trace(path)

    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert time.process_time() - begun_s < _SOON_S


def test_an_archive_that_unpacks_to_gigabytes(tmp_path: Path) -> None:
    """What an archive holds is counted while it is unpacked, whatever it claims."""
    path = tmp_path / "t.npz"
    zeros = _npy(_shape("(20000000,)")) + bytes(160_000_000)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("a.npy", zeros)
        archive.writestr("b.npy", zeros)

    with pytest.raises(BudgetError, match="40,000,000 numbers of arrays"):
        read_index_trace(path)


def test_numbers_survive(tmp_path: Path) -> None:
    """Arrays of every order and width are what NumPy has written."""
    rows = np.asfortranarray(np.arange(12, dtype=">i4").reshape(4, 3))
    np.save(tmp_path / "t.npy", rows)
    (table,) = read_index_trace(tmp_path / "t.npy")

    assert list(range(12)) == table.indices.tolist()


def test_a_table_of_sixty_thousand_columns(tmp_path: Path) -> None:
    """Columns are read in time that grows with their number, not with its square."""
    path, begun_s = tmp_path / "t.csv", time.process_time()
    names = ",".join(f"t{n}" for n in range(60_000))
    path.write_text(f"{names}\n{','.join(['1'] * 60_000)}\n", encoding="utf-8")

    assert 60_000 == len(read_index_trace(path))
    assert time.process_time() - begun_s < _SOON_S


def test_cells_are_counted(tmp_path: Path) -> None:
    """Tables of text have a budget of cells."""
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8")

    with raised_budgets({"values": 3}), pytest.raises(BudgetError):
        read_index_trace(path)
    with raised_budgets({"values": 3}), pytest.raises(BudgetError):
        read_rows(path, MEASUREMENTS)


@pytest.mark.parametrize("rank", ["999999999", "9" * 5000])
def test_ranks_of_a_log_are_not_counted_one_by_one(tmp_path: Path, rank: str) -> None:
    """A rank of a billion is a rank that is missing others, at once."""
    path, begun_s = tmp_path / "all_reduce_perf.log", time.process_time()
    log = nccl_log({1024: 10.0, 4096: 11.0})
    path.write_text(log.replace("Rank  3", f"Rank {rank}"), encoding="utf-8")
    with pytest.raises(PerfcError):
        read_nccl_log(path, "b200")

    assert time.process_time() - begun_s < _SOON_S


@pytest.mark.parametrize("size", ["²", "9" * 5000])
def test_sizes_of_a_log_are_numbers(tmp_path: Path, size: str) -> None:
    """What only looks like a number is no row, or is said."""
    path = tmp_path / "all_reduce_perf.log"
    path.write_text(
        nccl_log({1024: 10.0}).replace("        1024", f"   {size}"), encoding="utf-8"
    )
    with pytest.raises(PerfcError):
        read_nccl_log(path, "b200")


def _parquet(cells: list[bytes], latency_us: float = 1.0) -> bytes:
    pa: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    texts = pa.array(cells, pa.binary())
    column = pa.StringArray.from_buffers(len(cells), *texts.buffers()[1:])
    names = ("target", "op", "dtype", "params", "timing", "source", "kernel")
    columns: dict[str, Any] = dict.fromkeys(names, column)
    columns["latency_us"] = pa.array([latency_us] * len(cells))
    stream = io.BytesIO()
    parquet.write_table(pa.table(columns), stream)
    return stream.getvalue()


def test_parquet_text_that_is_no_text(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are one line, by either way of reading."""
    path = tmp_path / "t.parquet"
    path.write_bytes(_parquet([b"\xff\xfe"]))
    with pytest.raises(MeasurementError, match=r"no UTF-8 text at byte 0"):
        read_rows(path, MEASUREMENTS)
    with pytest.raises(MeasurementError, match=r"no UTF-8 text at byte 0"):
        read_columns(path)


_GEMM = '{"b": 1, "m": 8, "n": 8, "k": 8}'


@pytest.mark.parametrize(
    ("op", "params"),
    [
        ("gemm", _GEMM.replace("8", "1e30")),
        ("embedding_bag", '{"batch": 1e30, "tables": []}'),
        ("embedding_bag", '{"batch": 8, "tables": [{"rows": -1, "dim": 1}]}'),
        ("embedding_bag", '{"batch": 8, "tables": [{"rows": 8, "dim": NaN}]}'),
        ("gather", '{"indices": [1, -8], "shape": [1]}'),
        ("optimizer_step", '{"elements": 1e400, "kind": "adam"}'),
    ],
)
def test_sizes_that_cannot_be(tmp_path: Path, op: str, params: str) -> None:
    """A measured row of a negative, infinite or endless size is refused."""
    path = tmp_path / "t.csv"
    quoted = params.replace('"', '""')
    path.write_text(
        "target,op,dtype,params,latency_us,timing,source,kernel\n"
        f'a100-sxm-80g,{op},fp32,"{quoted}",1.0,kernel,x,\n',
        encoding="utf-8",
    )
    with pytest.raises(MeasurementError):
        kernel_of(*read_rows(path, MEASUREMENTS))


_COLUMNS = ("target", "op", "dtype", "params", "timing", "source")


def _repeating(rows: int) -> bytes:
    """Return a table in which a text of 24 kB stands in each row, once in its pages."""
    pa: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    text = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(rows, "i4")), pa.array(["{}" + " " * 24_000])
    )
    columns = {**dict.fromkeys(_COLUMNS, text), "latency_us": np.ones(rows)}
    stream = io.BytesIO()
    parquet.write_table(pa.table(columns), stream, store_schema=False)
    return stream.getvalue()


@pytest.mark.parametrize(
    "read",
    [
        "read_usable_rows(path, MEASUREMENTS)",
        "read_columns(path)",
        "read_session_trace(path, 'op')",
    ],
)
def test_text_is_held_once(tmp_path: Path, read: str) -> None:
    """A table of some kB whose text is 29 GB in all is read within a gigabyte."""
    path = tmp_path / "t.parquet"
    path.write_bytes(_repeating(200_000))
    assert path.stat().st_size < 50_000

    names = "MEASUREMENTS, read_columns, read_session_trace, read_usable_rows"
    lines = (
        f"from perfc.measurements import {names}",
        "from tests.fuzz.trial import limit_memory",
        "limit_memory()",
        f"path = {str(path)!r}",
        read,
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "fixed"])
def test_pages_are_counted_as_they_unpack(tmp_path: Path, encoding: str) -> None:
    """Texts that share beginnings, and long ones of a fixed length, have a budget."""
    pa: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    if encoding == "fixed":
        cells = pa.array([b"y" * 5_000] * 60_000, pa.binary(5_000))
        options: dict[str, Any] = {}
    else:
        cells = pa.array(["y" * 20_000 + str(n) for n in range(20_000)])
        options = {"use_dictionary": False, "column_encoding": {"t": encoding}}
    parquet.write_table(pa.table({"t": cells}), path, **options)

    assert path.stat().st_size < 1_000_000
    with pytest.raises(BudgetError, match="bytes that are unpacked at once"):
        read_index_trace(path)


def test_every_page_is_counted(tmp_path: Path) -> None:
    """All values of all row groups count, and the bytes that pages unpack to."""
    pa: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    table = pa.table({"a": np.arange(1000), "b": [[1, 2, 3]] * 1000})
    options = {"use_dictionary": False, "row_group_size": 300, "data_page_size": 100}
    for version in ("1.0", "2.0"):
        parquet.write_table(table, path, data_page_version=version, **options)
        assert 2 == len(read_index_trace(path))
        with raised_budgets({"elements": 3_999}), pytest.raises(BudgetError):
            read_index_trace(path)
        with raised_budgets({"unpacked-bytes": 31_999}), pytest.raises(BudgetError):
            read_index_trace(path)
