"""What the files hold: columns, and how a cell becomes a field and back."""

from __future__ import annotations

import csv
import functools
import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.ir import PerfcError, Record, record_of
from perfc.ir.support import json_value
from perfc.ir.text import json_of
from perfc.measurements.axes import counted_from_first
from perfc.measurements.row import TIMINGS, Measurement, WorkloadMeasurement
from perfc.measurements.split import FIT, TEST

Row = TypeVar("Row")
Cell = object
"""What a reader finds: text in CSV, typed values in Parquet, None for nothing."""


class MeasurementError(PerfcError):
    """A table of measured rows cannot be read, or says something that cannot be."""


@attrs.frozen
class Kind:
    """What the cells of a column are.

    Attributes:
        expected: What they are called in an error.
        arrow: Type in Parquet.
        read: Cell to field; raises ValueError where it cannot.

    """

    expected: str
    arrow: str
    read: Callable[[Cell], object]


def _number(cell: Cell) -> float:
    if isinstance(cell, bool) or not isinstance(cell, int | float | str):
        raise ValueError  # noqa: TRY004 - one error for all kinds
    value = float(cell)
    if not 0 <= value < math.inf:
        raise ValueError
    return value


def _count(cell: Cell) -> int:
    value = _number(cell)
    if value != int(value):
        raise ValueError
    return int(value)


def _flag(cell: Cell) -> bool:
    if isinstance(cell, bool):
        return cell
    return {"true": True, "false": False}[str(cell).lower()]


def _text(cell: Cell) -> str:
    if not isinstance(cell, str):
        raise ValueError  # noqa: TRY004 - one error for all kinds
    return cell


def _params(cell: Cell) -> Record:
    found = json_value(_text(cell))
    if not isinstance(found, dict):
        raise ValueError  # noqa: TRY004 - one error for all kinds
    return record_of(counted_from_first(cast("Mapping[str, Any]", found)))


_KINDS: Mapping[str, Kind] = {
    "str": Kind("text", "string", _text),
    "float": Kind("a number not below 0", "double", _number),
    "int": Kind("a whole number not below 0", "int64", _count),
    "bool": Kind("true or false", "bool", _flag),
    "Record": Kind("a JSON object", "string", _params),
}
"""Kinds of columns, by the type of the row's field."""

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "timing": TIMINGS,
    "split": ("", FIT, TEST),
    "mode": ("inference", "training"),
}
"""Columns with few values. Others may have what this version does not know."""


@attrs.frozen
class Fault:
    """Why a cell says nothing, without what it holds: equal for equal mistakes."""

    reason: str


@attrs.frozen
class Column:
    """One column: a field of the row.

    Attributes:
        name: Its name in the file and of the field.
        kind: What its cells are.
        required: Whether every file has it, and every row a value.
        default: Of the field where there is no value.

    """

    name: str
    kind: Kind
    required: bool
    default: object

    @classmethod
    def of(cls, name: str, type: str, default: object = attrs.NOTHING) -> Column:
        """Return the column of a field of a type, one of `str`, `float`, `int`, `bool`.

        Args:
            name: Its name.
            type: What the field is.
            default: What it is where there is no value; without one it is required.

        """
        return cls(name, _KINDS[type], default is attrs.NOTHING, default)

    def fields(self, cells: Sequence[Cell]) -> list[object]:
        """Return the fields of a whole column; equal cells are read once."""
        known: dict[object, object] = {}
        keys = [*map(_key, cells)]
        for number, (key, cell) in enumerate(zip(keys, cells, strict=True), 1):
            if key in known:
                continue
            try:
                known[key] = self.field(cell)
            except MeasurementError as error:
                msg = f"row {number}: {error}"
                raise MeasurementError(msg) from None
        return [known[key] for key in keys]

    def readable(self, cells: Sequence[Cell]) -> list[object]:
        """Return the fields of a whole column; for a cell that is none, a `Fault`."""
        known: dict[object, object] = {}
        keys = [*map(_key, cells)]
        for key, cell in zip(keys, cells, strict=True):
            if key not in known:
                known[key] = self._field_or_fault(cell)
        return [known[key] for key in keys]

    def _field_or_fault(self, cell: Cell) -> object:
        try:
            return self.field(cell)
        except MeasurementError:
            if cell is None or cell == "":
                return Fault(f"{self.name} is missing")
            choices = _CHOICES.get(self.name)
            expected = self.kind.expected if choices is None else _named(choices)
            return Fault(f"{self.name} is not {expected}")

    def numbers(self, cells: NDArray[Any]) -> NDArray[np.float64]:
        """Return the fields of a column whose cells are numbers already."""
        values = cells.astype(np.float64)
        bad = ~(np.isfinite(values) & (values >= 0))
        if bad.any():
            self.fields(values[: int(np.argmax(bad)) + 1].tolist())
        return values

    def field(self, cell: Cell) -> object:
        """Return the field for a cell."""
        if cell is None or (cell == "" and self.kind.arrow != "string"):
            if self.required:
                msg = f"{self.name} is missing, expected {self.kind.expected}"
                raise MeasurementError(msg)
            return self.default
        try:
            value = self.kind.read(cell)
        except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
            msg = f"{self.name} is {_short(cell)}, expected {self.kind.expected}"
            raise MeasurementError(msg) from None
        choices = _CHOICES.get(self.name)
        if choices is not None and value not in choices:
            msg = f"{self.name} is {_short(cell)}, expected {_named(choices)}"
            raise MeasurementError(msg)
        return value


def _named(choices: Sequence[str]) -> str:
    return ", ".join(choice or "nothing" for choice in choices)


def _key(cell: Cell) -> object:
    """Return a key that equal cells share: lists and structures have no hash."""
    try:
        hash(cell)
    except TypeError:
        return repr(cell)
    return cell


def _short(cell: Cell, limit: int = 40) -> str:
    text = repr(cell)
    return text if len(text) <= limit else text[: limit - 3] + "..."


@attrs.frozen
class Schema(Generic[Row]):
    """One format.

    Attributes:
        name: `perfc.measurements/1`, written into Parquet files.
        row: Class of its rows.

    """

    name: str
    row: type[Row]

    @functools.cached_property
    def columns(self) -> tuple[Column, ...]:
        """In the order of the files, which is that of the fields."""
        return tuple(
            Column.of(
                field.name, str(field.type).removesuffix(" | None"), field.default
            )
            for field in attrs.fields(cast("type[attrs.AttrsInstance]", self.row))
        )

    def column(self, name: str) -> Column:
        """Return the column of that name."""
        return next(column for column in self.columns if column.name == name)

    def rows_of(self, cells: Mapping[str, Sequence[Cell]]) -> list[Row]:
        """Return the rows of some columns, without those that the format lacks."""
        present = self._present(cells)
        names = [column.name for column in present]
        fields = zip(*[c.fields(cells[c.name]) for c in present], strict=True)
        return [self.row(**dict(zip(names, row, strict=True))) for row in fields]

    def usable_rows_of(
        self, cells: Mapping[str, Sequence[Cell]]
    ) -> tuple[list[Row], Counter[str]]:
        """Return the rows that can be read, and how many cannot, by reason."""
        present = self._present(cells)
        names = [column.name for column in present]
        unread: Counter[str] = Counter()
        rows: list[Row] = []
        for fields in zip(*[c.readable(cells[c.name]) for c in present], strict=True):
            fault = next((f for f in fields if isinstance(f, Fault)), None)
            if fault is not None:
                unread[fault.reason] += 1
            else:
                rows.append(self.row(**dict(zip(names, fields, strict=True))))
        return rows, unread

    def _present(self, cells: Mapping[str, Sequence[Cell]]) -> list[Column]:
        self.require_columns(list(cells))
        return [column for column in self.columns if column.name in cells]

    def cells_of(self, row: Row) -> dict[str, object]:
        """Return the cells of a row, by column: what Parquet holds."""
        cells = {c.name: getattr(row, c.name) for c in self.columns}
        return {
            name: json_of(cell) if isinstance(cell, Record) else cell
            for name, cell in cells.items()
        }

    def csv(self, rows: Iterable[Row], *, header: bool = True) -> bytes:
        """Return rows as CSV; nothing stands for None."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        if header:
            writer.writerow(column.name for column in self.columns)
        for row in rows:
            writer.writerow(map(_csv_cell, self.cells_of(row).values()))
        return stream.getvalue().encode()

    def require_columns(self, found: Sequence[str]) -> None:
        """Make sure that every column is there that every file has."""
        missing = [c.name for c in self.columns if c.required and c.name not in found]
        if missing:
            msg = (
                f"no column {', '.join(missing)}: expected a table in {self.name} "
                f"with {', '.join(c.name for c in self.columns if c.required)}; "
                f"found {', '.join(found) or 'no columns'}"
            )
            raise MeasurementError(msg)


def _csv_cell(cell: object) -> object:
    return str(cell).lower() if isinstance(cell, bool) else cell


MEASUREMENTS = Schema("perfc.measurements/1", Measurement)
"""Ops."""

WORKLOADS = Schema("perfc.workloads/1", WorkloadMeasurement)
"""Whole models."""
