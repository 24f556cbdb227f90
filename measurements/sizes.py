"""Parameters of measured rows as columns: what many rows give, read at once."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels import Floats
from perfc.measurements.schema import MeasurementError

Column = NDArray[Any]

_COLUMNS: Mapping[frozenset[type], str] = {
    frozenset({bool}): "bool",
    frozenset({int}): "int64",
    frozenset({float}): "float64",
    frozenset({str}): "str",
}
"""Type of a column by the types of its values."""

_TOO_MANY = 2.0**63
"""Limit of whole numbers: none of a row is as large."""


@attrs.frozen(eq=False)
class Sizes:
    """Parameters of rows that all give the same ones.

    Attributes:
        columns: By name: int64, float64, bool, words, or objects of several types;
            shape (rows,).
        count: How many rows.

    """

    columns: Mapping[str, Column]
    count: int

    @classmethod
    def of(cls, params: Sequence[Mapping[str, Any]]) -> Sizes:
        """Return the columns of rows, each with the keys of the first."""
        names = list(params[0]) if params else []
        return cls(
            {name: _column([row[name] for row in params]) for name in names},
            len(params),
        )

    def whole(self, name: str, default: int | None = None) -> Floats:
        """Return a parameter that is a whole number, not below 0."""
        column = self.columns.get(name)
        if column is None:
            if default is None:
                msg = f"{name} is missing, expected a whole number"
                raise MeasurementError(msg)
            return np.full(self.count, float(default))
        whole = column.dtype.kind == "i" or (
            column.dtype.kind == "f" and bool((column == np.floor(column)).all())
        )
        if not whole or not 0 <= column.min() <= column.max() < _TOO_MANY:
            found = repr(column.tolist()[0]) if len(column) == 1 else "of several kinds"
            msg = f"{name} is {found}, expected a whole number, not below 0"
            raise MeasurementError(msg)
        return column.astype(np.float64)

    def word(self, name: str, default: str, known: Sequence[str]) -> NDArray[np.str_]:
        """Return a parameter that is one of a few words."""
        column = self.columns.get(name)
        if column is None:
            return np.full(self.count, default)
        if column.dtype.kind != "U" or not np.isin(column, known).all():
            found = repr(column.tolist()[0]) if len(column) == 1 else "of several kinds"
            msg = f"{name} is {found}, expected one of {', '.join(known)}"
            raise MeasurementError(msg)
        return column

    def flag(self, name: str) -> NDArray[np.bool_]:
        """Return a parameter that is true or false, false where it is not given."""
        column = self.columns.get(name)
        if column is None:
            return np.zeros(self.count, dtype=np.bool_)
        if column.dtype.kind != "b":
            msg = f"{name} is {column[0]!r}, expected true or false"
            raise MeasurementError(msg)
        return column.astype(np.bool_)


def _column(values: Sequence[Any]) -> Column:
    kind = _COLUMNS.get(frozenset(map(type, values)))
    if kind is not None:
        with contextlib.suppress(OverflowError):  # what no size can be
            return np.array(values, dtype=kind)
    column: Column = np.empty(len(values), dtype=np.object_)
    for row, value in enumerate(values):  # a list would become a second axis
        column[row] = value
    return column
