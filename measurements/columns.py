"""Measured rows as columns: a table of hundreds of thousands, read in a moment."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels import Floats, Indices
from perfc.ir import PerfcError
from perfc.ir.support import brief, json_value
from perfc.measurements.axes import Params, counted_from_first
from perfc.measurements.row import Measurement
from perfc.measurements.schema import MEASUREMENTS, MeasurementError, Schema
from perfc.measurements.split import TEST
from perfc.measurements.table import (
    arrow_cells,
    coded_columns,
    parquet_table,
    read_data,
)


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
        parsed: What the different cells of `params` say; nothing where a cell is none.
        faults: Why a cell of `params` is none, by its number.
        split: What each row is for; "" where the table does not say.
        latency_us: Shape (rows,); NaN where a row has no time.

    """

    __repr__ = brief

    target: Coded
    op: Coded
    dtype: Coded
    timing: Coded
    source: Coded
    params: Coded
    parsed: Sequence[Params]
    faults: Mapping[int, str]
    split: Coded
    latency_us: Floats

    def __len__(self) -> int:
        return len(self.latency_us)

    @property
    def held_out(self) -> NDArray[np.bool_]:
        """Mask of the rows that the table marks `split=test`, shape (rows,)."""
        read = MEASUREMENTS.column(_SPLIT).field
        marked = np.array([read(mark) == TEST for mark in self.split.values], np.bool_)
        return marked[self.split.at]


_WORDS = ("target", "op", "dtype", "timing", "source", "params")
_LATENCY, _SPLIT = "latency_us", "split"


def read_columns(path: str | Path) -> MeasuredColumns:
    """Read a table of measured ops.

    A row whose cells are not what their columns hold is kept: of words that are
    missing as "", of times as NaN, and `faults` says it of parameters.
    """
    path = Path(path)
    data = read_data(path)
    columns_of = _from_csv if path.suffix == ".csv" else _from_parquet
    try:
        return columns_of(data, MEASUREMENTS)
    except PerfcError as error:
        msg = f"{path}: {error}"
        raise type(error)(msg) from None


def _from_csv(data: bytes, schema: Schema[Measurement]) -> MeasuredColumns:
    cells = coded_columns(data)
    schema.require_columns(list(cells))
    present = [name for name in (*_WORDS, _SPLIT, _LATENCY) if name in cells]
    coded = {name: _coded_cells(*cells[name]) for name in present}
    values, at = coded.pop(_LATENCY)
    return _checked(schema, coded, _times(schema, values)[at])


def _times(schema: Schema[Measurement], cells: Sequence[object]) -> Floats:
    """Return the times that cells of `latency_us` say, NaN where they say none."""
    read = schema.column(_LATENCY).field
    found = np.full(len(cells), np.nan)
    for number, cell in enumerate(cells):
        with contextlib.suppress(MeasurementError):
            found[number] = read(cell)
    return found


def _coded_cells(
    values: Sequence[str], at: Sequence[int]
) -> tuple[list[object], Indices]:
    return list[object](values), np.array(at, dtype=np.intp)


def _from_parquet(data: bytes, schema: Schema[Measurement]) -> MeasuredColumns:
    required = [column.name for column in schema.columns if column.required]
    table = parquet_table(data, schema.name, [*required, _SPLIT])
    schema.require_columns(table.column_names)
    present = [name for name in (*_WORDS, _SPLIT) if name in table.column_names]
    for name in present:
        if (kind := table.column(name).type).num_fields:
            what = schema.column(name).kind.expected
            msg = f"column {name} is {kind}, expected {what}"
            raise MeasurementError(msg)
    coded = {name: arrow_cells(table.column(name)) for name in present}
    latency = table.column(_LATENCY)
    if latency.null_count or np.dtype(latency.type.to_pandas_dtype()).kind not in "iuf":
        values, at = arrow_cells(latency)
        return _checked(schema, coded, _times(schema, values)[at])
    parts = [np.from_dlpack(part) for part in latency.chunks]
    numbers = np.concatenate([np.empty(0), *parts]).astype(np.float64)
    is_time = np.isfinite(numbers) & (numbers >= 0)
    return _checked(schema, coded, np.where(is_time, numbers, np.nan))


def _checked(
    schema: Schema[Measurement],
    coded: Mapping[str, tuple[list[object], Indices]],
    latency_us: Floats,
) -> MeasuredColumns:
    """Read each different cell once."""
    words: dict[str, Coded] = {}
    undecided: tuple[list[object], Indices] = [""], np.zeros(len(latency_us), np.intp)
    for name in (*_WORDS[:-1], _SPLIT):
        values, at = coded.get(name, undecided)
        words[name] = Coded(["" if v is None else str(v) for v in values], at)
    texts, at = coded["params"]
    faults: dict[int, str] = {}
    parsed = _all_params(texts) or _each_params(texts, _params_reader(schema), faults)
    return MeasuredColumns(
        **words,
        params=Coded(["" if text is None else str(text) for text in texts], at),
        parsed=[*map(counted_from_first, cast("list[Params]", parsed))],
        faults=faults,
        latency_us=latency_us,
    )


def _each_params(
    cells: Sequence[object],
    read: Callable[[object], object],
    faults: dict[int, str],
) -> list[object]:
    """Parse cell by cell; note in *faults* why one is no object."""
    found: list[object] = []
    for number, cell in enumerate(cells):
        try:
            found.append(read(cell))
        except MeasurementError as error:
            faults[number] = str(error)
            found.append({})
    return found


def _all_params(cells: Sequence[object]) -> list[object] | None:
    """Return the values of cells, read as one text; None: some is no plain object.

    Half as long as one by one: the names of parameters are read once for all.
    """
    texts = [
        cell for cell in cells if isinstance(cell, str) and cell[:1] + cell[-1:] == "{}"
    ]
    if len(texts) < len(cells):
        return None
    try:
        found = cast("list[object]", json_value(f"[{','.join(texts)}]"))
    except (ValueError, RecursionError):
        return None
    plain = len(found) == len(cells) and {*map(type, found)} <= {dict}
    return found if plain else None


def _params_reader(schema: Schema[Measurement]) -> Callable[[object], object]:
    """Return a reader of cells of `params`, which is quick for plain objects."""
    column = schema.column("params")

    def read(cell: object) -> object:
        try:
            found = json_value(cell if isinstance(cell, str) else "")
        except (ValueError, RecursionError):
            return column.field(cell)  # which says what is wrong, if anything is
        return cast("Params", found) if isinstance(found, dict) else column.field(cell)

    return read
