"""Tables of measured rows in files: CSV, or Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
import importlib
import io
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from perfc.ir import PerfcError, UsageError, spend
from perfc.ir.support import damage_as, read_whole, write_file
from perfc.measurements.parquet_pages import check_parquet
from perfc.measurements.schema import Cell, MeasurementError, Row, Schema

Made = TypeVar("Made")

SUFFIXES = (".parquet", ".csv")

_AT_ONCE = 256
"""Lines of a CSV file that are coded at a time: as few as stay in a CPU's cache, and
as do not set off Python's collector of garbage."""

_SCHEMA_KEY = b"perfc.schema"


def check_name(path: Path) -> None:
    """Make sure that a name says what the file is, and that such files can be made."""
    if path.suffix not in SUFFIXES:
        msg = f"table {path}: expected a name that ends in {' or '.join(SUFFIXES)}"
        raise UsageError(msg)
    if path.suffix == ".parquet":
        _pyarrow()


def read_rows(path: str | Path, schema: Schema[Row]) -> list[Row]:
    """Read a table.

    Columns that the format does not have are left out; so is an unknown op or target
    no error here (`kernel_of` has one).
    """
    return _read(Path(path), schema, schema.rows_of)


def read_usable_rows(
    path: str | Path, schema: Schema[Row]
) -> tuple[list[Row], Counter[str]]:
    """Read those rows of a table whose cells are what their columns hold.

    Returns:
        The rows, and how many others there are, by what is wrong with them.

    """
    return _read(Path(path), schema, schema.usable_rows_of)


def _read(
    path: Path,
    schema: Schema[Row],
    made: Callable[[Mapping[str, Sequence[Cell]]], Made],
) -> Made:
    data = read_data(path)
    try:
        if path.suffix == ".csv":
            return made(csv_columns(data))
        table = parquet_table(data, schema.name, [c.name for c in schema.columns])
        spend("values", table.num_rows * table.num_columns)
        coded = {name: arrow_cells(table.column(name)) for name in table.column_names}
        return made({name: [v[n] for n in at] for name, (v, at) in coded.items()})
    except PerfcError as error:
        msg = f"{path}: {error}"
        raise type(error)(msg) from None


def holds(path: Path, schema: Schema[Row]) -> bool:
    """Whether a file is a table, by its name, with every column of a format."""
    if path.suffix not in SUFFIXES:
        return False
    data = read_data(path)
    try:
        names = csv_columns(data) if path.suffix == ".csv" else _parquet_names(data)
    except PerfcError as error:
        msg = f"{path}: {error}"
        raise type(error)(msg) from None
    return {c.name for c in schema.columns if c.required} <= set(names)


def read_data(path: Path) -> bytes:
    """Return the bytes of a table."""
    check_name(path)
    return read_whole(path, MeasurementError)


def write_rows(path: str | Path, rows: Sequence[Row], schema: Schema[Row]) -> None:
    """Write a table in one step: a reader never sees half of it."""
    path = Path(path)
    check_name(path)
    is_csv = path.suffix == ".csv"
    write_file(path, schema.csv(rows) if is_csv else _parquet_of(rows, schema))


def csv_columns(data: bytes) -> Mapping[str, Sequence[Cell]]:
    """Return the cells of a CSV file, by column."""
    return {
        name: [values[number] for number in at]
        for name, (values, at) in coded_columns(data).items()
    }


def coded_columns(data: bytes) -> Mapping[str, tuple[list[str], Sequence[int]]]:
    """Return the different cells of a CSV file, and where they are, by column.

    Lines are coded some hundreds at a time: most cells are alike, and what is kept of a
    file is then small.
    """
    spend("values", data.count(b",") + data.count(b"\n"))
    try:
        reader = csv.reader(io.StringIO(data.decode("utf-8-sig")), strict=True)
        names = next(reader, list[str]())
        known = [defaultdict[str, int](itertools.count().__next__) for _ in names]
        at: list[list[int]] = [[] for _ in names]
        while lines := list(itertools.islice(reader, _AT_ONCE)):
            _check_cells(lines, len(names), len(at[0]) if at else 0)
            columns = zip(*lines, strict=True)
            for codes, numbers, cells in zip(known, at, columns, strict=True):
                numbers.extend(map(codes.__getitem__, cells))
    except UnicodeDecodeError as error:
        msg = f"not a CSV file: {error.reason} at byte {error.start}"
        raise MeasurementError(msg) from None
    except csv.Error as error:
        msg = f"not a CSV file: {error}"
        raise MeasurementError(msg) from None
    coded = zip(map(list, known), at, strict=True)
    return dict(zip(names, coded, strict=True))


def _check_cells(lines: Sequence[Sequence[str]], expected: int, before: int) -> None:
    """Refuse lines of another number of cells; *before* are how many came before."""
    if {*map(len, lines)} == {expected}:
        return
    number = next(i for i, cells in enumerate(lines) if len(cells) != expected)
    found = len(lines[number])
    msg = f"row {before + number + 1}: {found} cells, expected {expected}"
    raise MeasurementError(msg)


def _pyarrow() -> tuple[Any, Any]:
    """Return `pyarrow` and `pyarrow.parquet`."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module(
            "pyarrow.parquet"
        )
    except ImportError:
        msg = (
            "Parquet needs pyarrow: pip install 'perfc[measure]', "
            "or name a file that ends in .csv"
        )
        raise MeasurementError(msg) from None


def _parquet_of(rows: Sequence[Row], schema: Schema[Row]) -> bytes:
    pyarrow, parquet = _pyarrow()
    fields = [
        pyarrow.field(c.name, pyarrow.type_for_alias(c.kind.arrow))
        for c in schema.columns
    ]
    layout = pyarrow.schema(fields, {_SCHEMA_KEY: schema.name.encode()})
    cells = [schema.cells_of(row) for row in rows]
    stream = pyarrow.BufferOutputStream()
    table = pyarrow.Table.from_pylist(cells, schema=layout)
    parquet.write_table(table, stream, compression="zstd")
    written: bytes = stream.getvalue().to_pybytes()
    return written


def parquet_table(data: bytes, schema: str, columns: Sequence[str]) -> Any:
    """Return the `pyarrow.Table` of a Parquet file; of *columns*, those that it has."""
    pyarrow, _ = _pyarrow()
    with damage_as(MeasurementError, "", "a Parquet file"):
        file = parquet_file(_copied(pyarrow, data), data)
        table = file.read([n for n in file.schema_arrow.names if n in columns])
    metadata: Mapping[bytes, bytes] = table.schema.metadata or {}
    named = metadata.get(_SCHEMA_KEY, schema.encode())
    if named != schema.encode():
        msg = f"a table in {named.decode(errors='replace')}, expected {schema}"
        raise MeasurementError(msg)
    return table


def parquet_file(stream: Any, data: bytes, where: str = "") -> Any:
    """Return the `pyarrow.parquet.ParquetFile` of a stream of *data*, not read yet.

    Texts will be codes of those that are different: a file that says one often is
    small, and so is what is held of it.
    """
    _, parquet = _pyarrow()
    schema = parquet.ParquetFile(stream).schema
    check_parquet(data, where)
    leaves = map(schema.column, range(len(schema)))
    texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    return parquet.ParquetFile(stream, read_dictionary=texts)


def arrow_cells(column: Any) -> tuple[list[Any], Any]:
    """Return the different cells of a `pyarrow.ChunkedArray`, and where they are.

    By DLPack: pyarrow's `to_numpy` imports pandas where it is installed, for 0.3 s. Of
    lists and structures all cells are one, a list of their type.
    """
    if column.type.num_fields:
        return [[str(column.type)]], np.zeros(len(column), np.intp)
    with damage_as(MeasurementError, "", "a Parquet file"):  # text, for one
        values, codes = arrow_codes(column.combine_chunks())
        cells = values.to_pylist() + [None] * bool(codes.null_count)
        return cells, np.from_dlpack(codes.fill_null(len(values))).astype(np.intp)


def arrow_codes(cells: Any) -> tuple[Any, Any]:
    """Return the different cells of a `pyarrow.Array`, and the code of each."""
    if not hasattr(cells.type, "index_type"):
        coded = cells.dictionary_encode()
        return coded.dictionary, coded.indices
    known = cells.dictionary.dictionary_encode()  # a file may say a text twice
    return known.dictionary, known.indices.take(cells.indices)


def _parquet_names(data: bytes) -> Sequence[str]:
    """Return the columns of a Parquet file, whatever its format is."""
    pyarrow, parquet = _pyarrow()
    with damage_as(MeasurementError, "", "a Parquet file"):
        names: list[str] = parquet.ParquetFile(
            _copied(pyarrow, data)
        ).schema_arrow.names
    return names


def _copied(pyarrow: Any, data: bytes) -> Any:
    """Return a reader of a copy in pyarrow's own memory.

    What is Python's can be given back by one of pyarrow's threads, which aborts the
    process when it is at its end.
    """
    stream = pyarrow.BufferOutputStream()
    stream.write(data)
    return pyarrow.BufferReader(stream.getvalue())
