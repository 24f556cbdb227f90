"""Tables of text that is numbers with units, sorted by what they say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from perfc.tools.pages.tables import MOST_ROWS, Cell, Row, Table

_UNITS: Mapping[str, float] = {
    "": 1,
    "%": 1,
    "x": 1,
    "ns": 1e-3,
    "us": 1,
    "ms": 1e3,
    "s": 1e6,
    "min": 60 * 10**6,
    "h": 3600 * 10**6,
    "B": 1,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "PB": 1e15,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "W": 1,
    "kW": 1e3,
    "MW": 1e6,
    "J": 1,
    "kJ": 1e3,
}
"""What units are of the first of their kind; a column has one kind."""

_QUANTITY = re.compile(
    r"[~<$]?(?P<number>[+-]?[\d,]*\.?\d+(e[+-]?\d+)?)(?P<space> ?)(?P<unit>[A-Za-z%]*)"
    r"(?P<rest>( to | \(|, ).*)?"
)
_NONE = ("", "-")
"""What stands where there is no number."""

_BELOW_ALL = -1e300
"""What such a cell is sorted by."""


def quantity(text: str) -> float | None:
    """Return the number that a text such as `1.5 ms` or `1 us to 2 us` begins with.

    Times are in microseconds, amounts of memory in bytes; None of other text.
    """
    found = _QUANTITY.fullmatch(text)
    if found is None or found["unit"] not in _UNITS:
        return None
    return float(found["number"].replace(",", "")) * _UNITS[found["unit"]]


def quantity_table(
    lines: Sequence[Sequence[str]],
    name: str,
    *,
    search: bool = False,
    most: int = MOST_ROWS,
    order: str = "first",
) -> Table:
    """Return a table whose columns of quantities are sorted as numbers.

    Args:
        lines: A heading, and rows of text.
        name: What the table is, for people who hear the page.
        search: Whether rows can be searched for.
        most: How many rows are shown.
        order: What the rows are in order of, said where not all are shown.

    """
    heading, *rows = lines or [()]
    numeric = [
        _is_numeric([row[column] for row in rows]) for column in range(len(heading))
    ]
    return Table(
        heading,
        [_cells(row, numeric) for row in rows],
        name=name,
        search=search,
        most=most,
        order=order,
    )


def table(
    rows: Iterable[Mapping[str, str]], name: str, *, search: bool = False
) -> Table:
    """Return a table of rows that have their cells by heading, all the same ones.

    The arguments are those of `quantity_table`.
    """
    listed = [*rows]
    lines = [[*listed[0]], *([*row.values()] for row in listed)] if listed else []
    return quantity_table(lines, name, search=search)


def _is_numeric(cells: Sequence[str]) -> bool:
    told = [cell for cell in cells if cell not in _NONE]
    return bool(told) and all(quantity(cell) is not None for cell in told)


def _cells(row: Sequence[str], numeric: Sequence[bool]) -> Row:
    return [
        _cell(text) if is_number else text
        for text, is_number in zip(row, numeric, strict=True)
    ]


def _cell(text: str) -> Cell:
    value = quantity(text)
    return Cell(text, _BELOW_ALL if value is None else value)
