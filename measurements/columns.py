"""Measured rows as columns: a table of hundreds of thousands, read in a moment."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import attrs
import numpy as np

from perfc.measurements.row import Measurement
from perfc.measurements.schema import MEASUREMENTS, MeasurementError, Schema
from perfc.measurements.sizes import Floats, Indices
from perfc.measurements.table import coded_columns, parquet_table, read_data

Params = Mapping[str, Any]
"""A JSON object, parsed."""


@attrs.frozen(eq=False)
class Coded:
    """A column with few different cells.

    Attributes:
        values: The different ones.
        at: Which of them each row has, shape (rows,).

    """

    values: Sequence[str]
    at: Indices


@attrs.frozen(eq=False)
class MeasuredColumns:
    """Rows of `perfc.measurements/1`, those columns that say what a kernel took.

    Attributes:
        target: Target of each row; so are the others.
        op: Canonical name.
        dtype: What it computes in.
        timing: How it was timed.
        source: Where it comes from.
        params: Its sizes, as JSON.
        parsed: What the different cells of `params` say.
        latency_us: Shape (rows,).

    """

    target: Coded
    op: Coded
    dtype: Coded
    timing: Coded
    source: Coded
    params: Coded
    parsed: Sequence[Params]
    latency_us: Floats

    def __len__(self) -> int:
        return len(self.latency_us)


_WORDS = ("target", "op", "dtype", "timing", "source", "params")
_LATENCY = "latency_us"


def read_columns(path: str | Path) -> MeasuredColumns:
    """Read a table of measured ops.

    Raises:
        UsageError: the name ends neither in .parquet nor in .csv.
        MeasurementError: as `read_rows`.

    """
    path = Path(path)
    data = read_data(path)
    columns_of = _from_csv if path.suffix == ".csv" else _from_parquet
    try:
        return columns_of(data, MEASUREMENTS)
    except MeasurementError as error:
        msg = f"{path}: {error}"
        raise MeasurementError(msg) from None


def _from_csv(data: bytes, schema: Schema[Measurement]) -> MeasuredColumns:
    cells = coded_columns(data)
    schema.require_columns(list(cells))
    coded = {name: _coded_cells(*cells[name]) for name in (*_WORDS, _LATENCY)}
    values, at = coded.pop(_LATENCY)
    latency = _each(values, at, schema.column(_LATENCY).field)
    return _checked(schema, coded, np.array(latency, dtype=np.float64)[at])


def _coded_cells(
    values: Sequence[str], at: Sequence[int]
) -> tuple[list[object], Indices]:
    return list[object](values), np.array(at, dtype=np.intp)


def _from_parquet(data: bytes, schema: Schema[Measurement]) -> MeasuredColumns:
    required = [column.name for column in schema.columns if column.required]
    table = parquet_table(data, schema.name, required)
    schema.require_columns(table.column_names)
    coded = {name: _coded_arrow(table.column(name)) for name in _WORDS}
    latency = table.column(_LATENCY)
    column = schema.column(_LATENCY)
    if latency.null_count or np.dtype(latency.type.to_pandas_dtype()).kind not in "iuf":
        numbers = np.array(column.fields(latency.to_pylist()), dtype=np.float64)
    else:
        parts = [np.from_dlpack(part) for part in latency.chunks]
        numbers = column.numbers(np.concatenate([np.empty(0), *parts]))
    return _checked(schema, coded, numbers)


def _coded_arrow(column: Any) -> tuple[list[object], Indices]:  # noqa: ANN401 - pyarrow has no types
    """Return the different cells of a `pyarrow.ChunkedArray`, and where they are.

    By DLPack: pyarrow's `to_numpy` imports pandas where it is installed, for 0.3 s.
    """
    if hasattr(column.type, "value_type"):  # a dictionary already, of each chunk
        column = column.cast(column.type.value_type)
    coded = column.dictionary_encode(null_encoding="encode").combine_chunks()
    at = np.from_dlpack(coded.indices).astype(np.intp)
    return coded.dictionary.to_pylist(), at


def _checked(
    schema: Schema[Measurement],
    coded: Mapping[str, tuple[list[object], Indices]],
    latency_us: Floats,
) -> MeasuredColumns:
    """Read each different cell once; an error names the first row that has it."""
    words: dict[str, Coded] = {}
    for name in _WORDS[:-1]:
        values, at = coded[name]
        fields = _each(values, at, schema.column(name).field)
        words[name] = Coded([str(field) for field in fields], at)
    texts, at = coded["params"]
    parsed = _all_params(texts) or _each(texts, at, _params_reader(schema))
    return MeasuredColumns(
        **words,
        params=Coded(cast("list[str]", texts), at),
        parsed=cast("list[Params]", parsed),
        latency_us=latency_us,
    )


def _each(
    cells: Sequence[object], at: Indices, read: Callable[[object], object]
) -> list[object]:
    fields: list[object] = []
    for number, cell in enumerate(cells):
        try:
            fields.append(read(cell))
        except MeasurementError as error:
            msg = f"row {int(np.argmax(at == number)) + 1}: {error}"
            raise MeasurementError(msg) from None
    return fields


def _all_params(cells: Sequence[object]) -> list[object] | None:
    """Return what cells say, read as one text; None: some is no plain object.

    Half as long as one by one: the names of parameters are read once for all.
    """
    texts = [
        cell for cell in cells if isinstance(cell, str) and cell[:1] + cell[-1:] == "{}"
    ]
    if len(texts) < len(cells):
        return None
    try:
        found: list[object] = json.loads(f"[{','.join(texts)}]")
    except (ValueError, RecursionError):
        return None
    plain = len(found) == len(cells) and {*map(type, found)} <= {dict}
    return found if plain else None


def _params_reader(schema: Schema[Measurement]) -> Callable[[object], object]:
    """Return what parses a cell of `params`, quickly if it is a plain object."""
    scan = json.JSONDecoder().raw_decode
    column = schema.column("params")

    def read(cell: object) -> object:
        text = cell if isinstance(cell, str) else ""
        try:
            found, end = scan(text)
        except (ValueError, RecursionError):
            return column.field(cell)  # which says what is wrong, if anything is
        plain = end == len(text) and isinstance(found, dict)
        return cast("Params", found) if plain else column.field(cell)

    return read
