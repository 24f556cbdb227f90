"""Files of fitted parameters, as `make fit` writes them into `costmodels/fitted`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping

Tables = Mapping[str, Mapping[str, object]]
"""Parameters by table and name; those of the table "" stand in front of the others."""


def fitted_text(
    tables: Tables, source: str, today: str, shipped: Mapping[str, object]
) -> str:
    """Return the file, with its source and date.

    Args:
        tables: What it holds.
        source: Of the rows, with licenses.
        today: The date of the fit.
        shipped: What the file holds until now. If nothing else changes its date stays,
            so that a second fit gives the same bytes.

    """
    same = "\n".join(_lines(tables, source, str(shipped.get("date", today)))) + "\n"
    if tomllib.loads(same) == shipped:
        return same
    return "\n".join(_lines(tables, source, today)) + "\n"


def _lines(tables: Tables, source: str, date: str) -> Iterator[str]:
    yield from ("# Written by `make fit`.", f'source = "{source}"', f'date = "{date}"')
    for table, values in tables.items():
        yield from ("", f"[{table}]") if table else ()
        yield from (f'"{key}" = {value}' for key, value in sorted(values.items()))
