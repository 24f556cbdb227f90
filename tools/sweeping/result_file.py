"""The file of a sweep: rows are kept beside it while they come, and found again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import attrs

from perfc.ir import PerfcError, UsageError
from perfc.ir.support import damage_as, parse_json, read_text, write_file
from perfc.measurements import Column, MeasurementError, RowWriter, Schema
from perfc.tools.sweeping.space import SCHEMA, Row, Space

TABLES = (".csv", ".parquet")
DOCUMENTS = (".json", ".html")

SWEEP = "sweep"
"""Column of tables, and key of documents, that tells one sweep from others."""

PAGE_ELEMENT = "perfc-sweep"
"""The element of a page that holds the document, for `--resume` and other programs."""

_MARK = f'<script type="application/json" id="{PAGE_ELEMENT}">'
_END = "</script>"

_ADVICE = "name another file, or remove it"


class DocumentError(PerfcError):
    """A document is none of a sweep."""


Document = Callable[[Sequence[Row]], str]


@attrs.frozen
class _Rows(Schema[Row]):
    """The format of the rows of one sweep."""

    swept: tuple[Column, ...] = ()

    @classmethod
    def of(cls, space: Space) -> _Rows:
        """Return that of a sweep, whose last column tells it from others."""
        return cls(SCHEMA, dict, (*space.columns, Column.of(SWEEP, "str")))

    @functools.cached_property
    def columns(self) -> tuple[Column, ...]:
        """What the rows have, in order."""
        return self.swept

    def require_columns(self, found: Sequence[str]) -> None:
        """Make sure that every column is there: all are written."""
        missing = [c.name for c in self.columns if c.name not in found]
        if missing:
            msg = f"no column {', '.join(missing)}"
            raise MeasurementError(msg)

    def cells_of(self, row: Row) -> dict[str, object]:
        """Return the cells of a row, by column."""
        return {column.name: row[column.name] for column in self.columns}


@attrs.define
class ResultFile:
    """A file of rows that grows, and that a later run of the same sweep goes on with.

    Rows that come are appended to `FILE.part.csv` (of a document, `FILE.csv.part.csv`)
    and flushed to the disk at once. `finish` writes the file in one step.

    Attributes:
        path: The file: a table (`.csv`, `.parquet`) or a document (`.json`, `.html`).
        space: What is swept.
        rows: Those that are there.

    """

    path: Path
    space: Space
    rows: list[Row]
    _writer: RowWriter[Row]

    @classmethod
    def open(cls, path: Path, space: Space, *, resume: bool) -> ResultFile:
        """Return the file, with the rows that an earlier run has written."""
        if path.suffix not in (*TABLES, *DOCUMENTS):
            known = ", ".join((*TABLES, *DOCUMENTS))
            msg = f"-o {path}: expected a name that ends in one of {known}"
            raise UsageError(msg)
        schema = _Rows.of(space)
        is_table = path.suffix in TABLES
        kept = path if is_table else path.with_name(f"{path.name}.csv")
        journal = kept.with_name(f"{kept.name}.part.csv")
        there = [one for one in (path, kept, journal) if one.exists()]
        if there and not resume:
            msg = f"{there[0]} is there: --resume goes on with it; else remove it"
            raise UsageError(msg)
        in_document = not is_table and path.exists()
        try:
            document = _document_rows(path, space, schema) if in_document else []
            places = {space.key_of(one): one.number for one in space}
            writer = RowWriter(
                kept, schema, space.key, lambda row: places.get(space.key(row), 0)
            )
        except (MeasurementError, DocumentError) as error:
            msg = f"{there[0]} is no result of this sweep ({error}); {_ADVICE}"
            raise UsageError(msg) from None
        parts = (document, writer.rows)
        if any(row[SWEEP] != space.digest for rows in parts for row in rows):
            msg = f"{there[0]} is the result of another sweep; {_ADVICE}"
            raise UsageError(msg)
        if any(len(p) > len({*map(space.key, p)} & places.keys()) for p in parts):
            msg = f"{there[0]} has a configuration twice, or one too many; {_ADVICE}"
            raise UsageError(msg)
        if in_document:
            writer.append(document)
        return cls(path, space, _without_sweep(writer.rows), writer)

    def append(self, rows: Iterable[Row]) -> None:
        """Keep some rows: from now on, no kill loses them."""
        added = list(rows)
        self._writer.append(_with_sweep(self.space, added))
        self.rows += added

    def finish(self, document: Document) -> None:
        """Write the file; of a format of its own, *document* writes the rows."""
        self._writer.flush()
        kept, rows = self._writer.path, _without_sweep(self._writer.rows)
        if rows and kept != self.path:
            write_file(self.path, document(rows))
            kept.unlink(missing_ok=True)


def rows_csv(space: Space, rows: Sequence[Row]) -> str:
    """Return rows as a `.csv` file of the sweep has them."""
    return _Rows.of(space).csv(_with_sweep(space, rows)).decode()


def _with_sweep(space: Space, rows: Sequence[Row]) -> list[Row]:
    return [{**row, SWEEP: space.digest} for row in rows]


def _without_sweep(rows: Iterable[Row]) -> list[Row]:
    return [{k: v for k, v in row.items() if k != SWEEP} for row in rows]


def _document_rows(path: Path, space: Space, schema: _Rows) -> list[Row]:
    """Return the rows of a document, with the sweep that it is of."""
    text = read_text(path, DocumentError, "the result of a sweep")
    if path.suffix == ".html":
        text = text.partition(_MARK)[2].partition(_END)[0]
    found = parse_json(text, DocumentError, str(path), "the result of a sweep")
    with damage_as(DocumentError, str(path), "the result of a sweep"):
        document = cast("Any", found)
        digest, rows = str(document[SWEEP]), document["rows"]
        if digest != space.digest:
            return [{SWEEP: digest}]
        names = [column.name for column in space.columns]
        cells = {name: [row[name] for row in rows] for name in names}
    return schema.rows_of({**cells, SWEEP: [digest] * len(rows)})
