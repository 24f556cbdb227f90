"""Tables of columns: Parquet, or CSV where pyarrow is missing.

Numbers are kept in arrays and written in four or eight bytes, texts by a dictionary:
hundreds of thousands of rows take a few megabytes. As in `perfc.measurements`, the name
of the format stands in Parquet's metadata, and an empty cell of CSV is nothing.
"""

from __future__ import annotations

import csv
import importlib
import io
import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.ir.support import write_file
from perfc.measurements import MeasurementError

Column: TypeAlias = "NDArray[Any] | list[str]"
"""float32 with NaN, or int64 with -1, for nothing; or texts."""

Cell: TypeAlias = "str | float | int | None"
Kind: TypeAlias = Literal["text", "float", "int"]

_SCHEMA_KEY = b"perfc.schema"
_NOTHING = -1
_ARROW: Mapping[Kind, str] = {"text": "string", "float": "float", "int": "int64"}
_ENCODINGS: Mapping[Kind, str] = {
    "float": "BYTE_STREAM_SPLIT",
    "int": "DELTA_BINARY_PACKED",
}
_DTYPES: Mapping[Kind, type[np.generic]] = {"float": np.float32, "int": np.int64}


@attrs.frozen
class Field:
    """One column.

    Attributes:
        name: In the file.
        kind: text; float, of 32 bits; or int, not below 0.

    """

    name: str
    kind: Kind

    def pack(self, cells: Sequence[Cell]) -> Column:
        """Return cells as they are kept.

        Raises:
            ValueError: one is no number.

        """
        if self.kind == "text":
            return [str(cell) for cell in cells]
        empty = math.nan if self.kind == "float" else _NOTHING
        numbers = [empty if cell is None or cell == "" else cell for cell in cells]
        return np.array(numbers, _DTYPES[self.kind])

    def unpack(self, column: Column) -> list[Any]:
        """Return kept cells as numbers of Python, None for nothing."""
        if isinstance(column, list):
            return column
        if self.kind == "float":
            return [None if math.isnan(cell) else cell for cell in column.tolist()]
        return [None if cell == _NOTHING else cell for cell in column.tolist()]

    def joined(self, parts: Sequence[Column]) -> Column:
        """Return columns one after the other."""
        if self.kind == "text":
            return [text for part in parts for text in part]
        return np.concatenate([self.pack(()), *parts])


@attrs.frozen
class Format:
    """What a file holds: its name in the metadata, and its columns in order."""

    name: str
    fields: tuple[Field, ...]

    def pack(self, rows: Sequence[Sequence[Cell]]) -> dict[str, Column]:
        """Return the columns of some rows, each in the order of the fields."""
        cells = [*zip(*rows, strict=True)] or [()] * len(self.fields)
        pairs = zip(self.fields, cells, strict=True)
        return {field.name: field.pack(column) for field, column in pairs}


def table_path(folder: Path, name: str) -> Path:
    """Return where a table goes; one that is there as CSV keeps its kind."""
    plain = folder / f"{name}.csv"
    packed = folder / f"{name}.parquet"
    return plain if plain.exists() or find_spec("pyarrow") is None else packed


def write_table(path: Path, layout: Format, columns: Mapping[str, Column]) -> None:
    """Write a table in one step, CSV or Parquet by its name.

    Raises:
        PerfcError: pyarrow is missing, or the file cannot be written.

    """
    encode = _csv_of if path.suffix == ".csv" else _parquet_of
    write_file(path, encode(layout, columns))


def read_table(path: Path, layout: Format) -> dict[str, Column]:
    """Read a table; columns that the format does not have are left out.

    Raises:
        MeasurementError: there is no such file, it is damaged or of another format, a
            column is missing, or a cell is no number.

    """
    decode = _csv_columns if path.suffix == ".csv" else _parquet_columns
    try:
        return decode(path.read_bytes(), layout)
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror or error}"
        raise MeasurementError(msg) from None
    except (ValueError, csv.Error) as error:  # pyarrow's are ValueErrors
        msg = (
            f"{path}: expected a table in {layout.name}: {' '.join(str(error).split())}"
        )
        raise MeasurementError(msg) from None


def _csv_of(layout: Format, columns: Mapping[str, Column]) -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(field.name for field in layout.fields)
    cells = [_csv_cells(field, columns[field.name]) for field in layout.fields]
    writer.writerows(zip(*cells, strict=True))
    return stream.getvalue().encode()


def _csv_cells(field: Field, column: Column) -> Sequence[object]:
    """Return the cells to write: floats by as few digits as tell 32 bits apart."""
    if field.kind == "float":
        return ["" if np.isnan(cell) else str(cell) for cell in column]
    return field.unpack(column)


def _csv_columns(data: bytes, layout: Format) -> dict[str, Column]:
    reader = csv.reader(io.StringIO(data.decode("utf-8-sig")), strict=True)
    names = next(reader, list[str]())
    _require(layout, names)
    rows = zip(*reader, strict=True)
    cells = dict(zip(names, rows, strict=False))
    return {f.name: f.pack(cells.get(f.name, ())) for f in layout.fields}


def _require(layout: Format, names: Sequence[str]) -> None:
    missing = [field.name for field in layout.fields if field.name not in names]
    if missing:
        msg = f"no column {', '.join(missing)}"
        raise ValueError(msg)


def _pyarrow() -> tuple[Any, Any]:
    try:
        arrow = importlib.import_module("pyarrow")
        return arrow, importlib.import_module("pyarrow.parquet")
    except ImportError:
        msg = "Parquet needs pyarrow: name a file that ends in .csv"
        raise MeasurementError(msg) from None


def _parquet_of(layout: Format, columns: Mapping[str, Column]) -> bytes:
    """Write numbers so that they pack: floats byte by byte, integers by differences."""
    arrow, parquet = _pyarrow()
    types = [(f.name, arrow.type_for_alias(_ARROW[f.kind])) for f in layout.fields]
    schema = arrow.schema(types, {_SCHEMA_KEY: layout.name.encode()})
    arrays = [_arrow_array(arrow, f, columns[f.name]) for f in layout.fields]
    stream = arrow.BufferOutputStream()
    parquet.write_table(
        arrow.table(arrays, schema=schema),
        stream,
        compression="zstd",
        compression_level=9,
        use_dictionary=[f.name for f in layout.fields if f.kind == "text"],
        column_encoding={
            f.name: _ENCODINGS[f.kind] for f in layout.fields if f.kind in _ENCODINGS
        },
    )
    written: bytes = stream.getvalue().to_pybytes()
    return written


def _arrow_array(arrow: Any, field: Field, column: Column) -> Any:
    if isinstance(column, list):
        return arrow.array(column, arrow.string())
    empty = np.isnan(column) if field.kind == "float" else column == _NOTHING
    return arrow.array(column, arrow.type_for_alias(_ARROW[field.kind]), mask=empty)


def _parquet_columns(data: bytes, layout: Format) -> dict[str, Column]:
    arrow, parquet = _pyarrow()
    # A thread of pyarrow that gives back what is Python's aborts a process at its end.
    stream = arrow.BufferOutputStream()
    stream.write(data)
    file = parquet.ParquetFile(arrow.BufferReader(stream.getvalue()))
    _require(layout, file.schema_arrow.names)
    metadata: Mapping[bytes, bytes] = file.schema_arrow.metadata or {}
    named = metadata.get(_SCHEMA_KEY, b"")
    if named != layout.name.encode():
        msg = f"found one in {named.decode(errors='replace') or 'no format of perfc'}"
        raise ValueError(msg)
    names = [field.name for field in layout.fields]
    table = file.read(names)
    return {f.name: _column_of(f, table.column(f.name)) for f in layout.fields}


def _column_of(field: Field, column: Any) -> Column:
    if field.kind == "text":
        texts: list[str] = column.to_pylist()
        return texts
    empty = math.nan if field.kind == "float" else _NOTHING
    numbers: NDArray[Any] = column.fill_null(empty).to_numpy()
    return numbers.astype(_DTYPES[field.kind])
