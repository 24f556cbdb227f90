"""Index traces: which rows of embedding tables samples looked up, from files.

- `.npz`: `indices` of all tables one after the other with `lengths` of shape (tables,
  batch), as TorchRec and facebookresearch/dlrm_datasets have them, or with `offsets`
  (and `tables`, a number, where there are several); or arrays of tables by name, `NAME`
  with `NAME_offsets`, or `indices_NAME` with `offsets_NAME`.
- `.npy`: rows of one table, shape (lookups,) or (batch, pooling).
- `.parquet`, `.csv`: a column a table, a line a sample; a cell is a row, or a list of
  rows; in CSV separated by blanks or `|`, below a line of the names of tables.
"""

from __future__ import annotations

import csv
import importlib
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.ir import PerfcError, spend
from perfc.ir.support import damage_as, read_text, read_whole
from perfc.measurements.numpy_file import read_array, read_arrays
from perfc.measurements.table import parquet_file

Ints = NDArray[np.int64]


class IndexTraceError(PerfcError):
    """A file is no index trace."""


_ITEM_BYTES = 8
_MOST = 2**63 - 1
"""Number of a row: what 64 bits with a sign hold."""


@attrs.frozen(eq=False)
class TableTrace:
    """Lookups in one table, in order.

    Attributes:
        name: Of the table.
        indices: Rows, shape `(lookups,)`, not negative.
        lengths: Rows of each bag, shape `(bags,)`; they add up to the lookups.

    """

    name: str
    indices: Ints
    lengths: Ints

    @property
    def pooling(self) -> float:
        """Mean rows of a bag."""
        return len(self.indices) / len(self.lengths) if len(self.lengths) else 0.0


def read_index_trace(path: Path) -> list[TableTrace]:
    """Read the tables of a trace."""
    readers = {
        ".npz": _npz,
        ".npy": _npy,
        ".parquet": _parquet,
        ".csv": _csv,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        message = f"{path}: an index trace ends in one of {', '.join(readers)}"
        raise IndexTraceError(message)
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        message = f"{path}: {found}; expected an index trace"
        raise IndexTraceError(message)
    tables = reader(path)
    _check_names(path, [table.name for table in tables])
    if not any(len(table.indices) for table in tables):
        message = f"{path}: there are no lookups in it"
        raise IndexTraceError(message)
    return tables


def _check_names(path: Path, names: Sequence[str]) -> None:
    """Refuse tables that nobody could speak of."""
    if "" in names:
        message = f"{path}: table {names.index('') + 1} has no name; expected one"
        raise IndexTraceError(message)
    twice, times = Counter(names).most_common(1)[0] if names else ("", 0)
    if times > 1:
        message = f"{path}: two tables are called {twice!r}; expected a name for each"
        raise IndexTraceError(message)


def _table(path: Path, name: str, indices: Ints, lengths: Ints) -> TableTrace:
    """Check and make a table."""
    if len(indices) and int(indices.min()) < 0:
        least = int(indices.min())
        message = f"{path}: {name!r} looks up row {least}; expected 0 or more"
        raise IndexTraceError(message)
    if len(lengths) and int(lengths.min()) < 0:
        message = f"{path}: offsets of {name!r} fall; expected them to rise"
        raise IndexTraceError(message)
    held = sum(lengths.tolist())  # numbers of Python, which do not overflow
    if held != len(indices):
        message = (
            f"{path}: bags of {name!r} hold {held} rows, but there are "
            f"{len(indices)} indices"
        )
        raise IndexTraceError(message)
    return TableTrace(name, indices, lengths)


def _integers(path: Path, name: str, found: Any, dims: tuple[int, ...]) -> Ints:
    """Return an array of integers of so many dimensions."""
    array: NDArray[Any] = np.asarray(found)
    if array.dtype.kind not in "iu" or array.ndim not in dims:
        expected = " or ".join(f"{count}-D" for count in dims)
        message = (
            f"{path}: {name!r} is {array.ndim}-D of {array.dtype}; "
            f"expected {expected} of integers"
        )
        raise IndexTraceError(message)
    if array.dtype.kind == "u" and array.size and int(array.max()) > _MOST:
        raise _beyond(path, name)
    return array.astype(np.int64)


def _beyond(path: Path, name: str) -> IndexTraceError:
    return IndexTraceError(f"{path}: {name!r} looks up a row beyond {_MOST}")


def _npy(path: Path) -> list[TableTrace]:
    data = read_whole(path, IndexTraceError)
    with damage_as(IndexTraceError, str(path), ".npy"):
        array = read_array(io.BytesIO(data), str(path))
    return [_single(path, path.stem, array)]


def _single(path: Path, name: str, found: Any) -> TableTrace:  # whatever a file has
    rows = _integers(path, name, found, (1, 2))
    pooling = rows.shape[1] if len(rows.shape) > 1 else 1
    return _table(path, name, rows.reshape(-1), np.full(len(rows), pooling))


def _npz(path: Path) -> list[TableTrace]:
    data = read_whole(path, IndexTraceError)
    with damage_as(IndexTraceError, str(path), ".npz"):
        arrays = read_arrays(data, str(path))
    if "indices" in arrays:
        return _joined(path, arrays)
    # Read an array for each table, and its offsets.
    tables: list[TableTrace] = []
    for key, found in arrays.items():
        if key.startswith("offsets") or key.endswith("_offsets"):
            continue
        name = key.removeprefix("indices_")
        bounds = arrays.get(f"{name}_offsets", arrays.get(f"offsets_{name}"))
        if bounds is None:
            tables.append(_single(path, name, found))
            continue
        rows = _integers(path, key, found, (1,))
        offsets = _integers(path, f"offsets of {name}", bounds, (1,))
        tables.append(_table(path, name, rows, _lengths(offsets, len(rows))))
    if not tables:
        message = f"{path}: no array of indices; found {', '.join(arrays) or 'nothing'}"
        raise IndexTraceError(message)
    return tables


def _joined(path: Path, arrays: Mapping[str, Any]) -> list[TableTrace]:
    """Take apart one list of all tables, a table after the other."""
    if "lengths" not in arrays and "offsets" not in arrays:
        if np.asarray(arrays["indices"]).ndim > 1:
            return [_single(path, path.stem, arrays["indices"])]
        message = f"{path}: 'indices' need 'lengths' or 'offsets' beside them"
        raise IndexTraceError(message)
    indices = _integers(path, "indices", arrays["indices"], (1,))
    if "lengths" in arrays:
        lengths = _integers(path, "lengths", arrays["lengths"], (1, 2))
    else:
        offsets = _integers(path, "offsets", arrays["offsets"], (1,))
        lengths = _lengths(offsets, len(indices))
    if len(lengths.shape) == 1:
        said = np.asarray(arrays.get("tables", 1)).reshape(-1)
        said = _integers(path, "tables", said, (1,))
        count = int(said[0]) if len(said) == 1 else 0
        if count < 1 or len(lengths) % count:
            message = f"{path}: {len(lengths)} bags are not those of {count} tables"
            raise IndexTraceError(message)
        lengths = lengths.reshape(count, -1)
    _table(path, "indices", indices, lengths.reshape(-1))
    ends = np.cumsum(lengths.sum(axis=1))
    parts = np.split(indices, ends[:-1])
    return [
        _table(path, f"t{number}", part, lengths[number])
        for number, part in enumerate(parts)
    ]


def _lengths(offsets: Ints, lookups: int) -> Ints:
    """Return the lengths of bags; the last may end where the lookups do."""
    if len(offsets) and offsets[0] == 0 and offsets[-1] == lookups and len(offsets) > 1:
        return np.diff(offsets)
    return np.diff(offsets, append=lookups)


def _csv(path: Path) -> list[TableTrace]:
    text = read_text(path, IndexTraceError, ".csv")
    spend("values", sum(map(text.count, ",\n| ")), str(path))
    reader = csv.reader(io.StringIO(text, newline=""))
    with damage_as(IndexTraceError, str(path), ".csv"):
        names = next(reader, list[str]())
        if names and not any(name.strip(" |0123456789") for name in names):
            message = f"{path}: line 1 has no names of tables; found {names[0]!r}"
            raise IndexTraceError(message)
        cells: list[list[list[int]]] = [[] for _ in names]
        for line in filter(None, reader):
            if len(line) != len(names):
                message = (
                    f"{path}, line {reader.line_num}: {len(line)} cells; "
                    f"expected {len(names)}, a table each"
                )
                raise IndexTraceError(message)
            for column, cell in zip(cells, line, strict=True):
                column.append([int(row) for row in cell.replace("|", " ").split()])
    return [_listed(path, name, bags) for name, bags in zip(names, cells, strict=True)]


def _listed(path: Path, name: str, bags: list[list[int]]) -> TableTrace:
    lengths = np.array([len(bag) for bag in bags], dtype=np.int64)
    try:
        flat = np.array([row for bag in bags for row in bag], dtype=np.int64)
    except OverflowError:
        raise _beyond(path, name) from None
    return _table(path, name, flat, lengths)


def _parquet(path: Path) -> list[TableTrace]:
    found = arrow_table(path)
    with damage_as(IndexTraceError, str(path), ".parquet"):
        columns = zip(found.column_names, found.columns, strict=True)
        return [_arrow_column(path, name, column) for name, column in columns]


def _arrow_column(path: Path, name: str, chunked: Any) -> TableTrace:
    column: Any = chunked.combine_chunks()
    if not str(column.type).startswith(("list", "large_list", "fixed_size_list")):
        return _single(path, name, _column(path, name, column))
    rows = _integers(path, name, _column(path, name, column.flatten()), (1,))
    return _table(path, name, rows, bag_lengths(column))


def bag_lengths(column: Any) -> Ints:
    """Return the lengths of lists; a list that is not there is a bag of none."""
    if str(column.type).startswith("fixed_size_list"):
        valid: NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
        return valid * np.int64(column.type.list_size)
    lengths: Any = column.value_lengths().fill_null(0)
    found: Ints = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _column(path: Path, name: str, column: Any) -> Any:
    if column.null_count:
        holes = f"no value {column.null_count} times"
        message = f"{path}: {name!r} has {holes}; expected integers"
        raise IndexTraceError(message)
    return column.to_numpy(zero_copy_only=False)


def arrow_table(path: Path) -> Any:
    """Return the table of a Parquet file."""
    try:
        pyarrow: Any = importlib.import_module("pyarrow")
    except ImportError:
        message = f"{path}: Parquet needs pyarrow: pip install 'perfc[measure]'"
        raise IndexTraceError(message) from None
    data = read_whole(path, IndexTraceError)
    with damage_as(IndexTraceError, str(path), ".parquet"):
        file = parquet_file(io.BytesIO(data), data, str(path))
        batches: list[Any] = []
        held = 0
        for group in range(file.num_row_groups):  # lists of text of one at a time only
            for batch in file.iter_batches(row_groups=[group]):
                held += batch.nbytes
                spend("elements", held // _ITEM_BYTES, str(path))
                batches.append(batch)
        return pyarrow.Table.from_batches(batches, schema=file.schema_arrow)
