"""Lists of embedding tables as JSON: a model that has nothing else.

    {"tables": [{"name": "item", "rows": 1000000, "dim": 64, "pooling": 20}, ...],
     "batch": 512}

`hotness` is another word for `pooling`; `count` stands for so many tables alike;
`dtype` is `fp32`, `fp16` or `bf16`; `popularity` says how lookups spread over rows. A
file of several such lists by name is read too: `FILE:NAME` says which.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, cast

import attrs

from perfc import ir
from perfc.ir.location import Location
from perfc.ir.program import RankClass
from perfc.ir.support import brief, read_text

_TYPES = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}
_LARGEST = 2**40
"""Rows, columns and lookups are fewer than so many."""

_MOST_TABLES = 4_000
"""A search prices each of a list several times: some milliseconds a table."""


@attrs.frozen(kw_only=True)
class ListedTable:
    """A table of a list.

    Attributes:
        name: What plans call it.
        rows: Its rows.
        dim: Its columns.
        pooling: Rows that a bag sums up, on average.
        dtype: One of `fp32`, `fp16`, `bf16`.
        popularity: How lookups spread over rows; "" for evenly.

    """

    name: str
    rows: int
    dim: int
    pooling: float
    dtype: str = "fp32"
    popularity: str = ""


@attrs.frozen
class TableList:
    """Tables, and the batch of one rank if the file says it."""

    __repr__ = brief

    name: str
    tables: tuple[ListedTable, ...]
    batch: int | None

    def program(self, batch: int) -> ir.Program:
        """Return a model that looks them up, for so many samples on each rank.

        One number of each sample is its result: what a dense part would add is not
        there.
        """
        dtype = ir.DTYPES[_TYPES[self.tables[0].dtype]]
        index, graph = ir.DTYPES["i64"], ir.Graph(self.name)
        weights = [
            graph.add_parameter(
                f"{t.name}.weight", ir.TensorType(dtype, (t.rows, t.dim))
            )
            for t in self.tables
        ]
        lookups = sum(max(1, round(batch * t.pooling)) for t in self.tables)
        bounds = batch * len(self.tables) + 1
        lists = (
            graph.add_input("indices", ir.TensorType(index, (lookups,))),
            graph.add_input("offsets", ir.TensorType(index, (bounds,))),
        )
        attributes: dict[str, ir.AttrValue] = {
            "tables": tuple(_record(table) for table in self.tables),
            "mode": "sum",
            "has_offsets": True,
            "include_last_offset": True,
        }
        at = Location(module="tables")
        operands = (*weights, *lists)
        graph.add("embedding_bag", operands, ("rows",), attributes, location=at)
        cut = tuple(_constant(graph, n, i) for n, i in (("s", 0), ("e", 1), ("a", 1)))
        graph.add("slice", (graph.value("rows"), *cut), ("first",), location=at)
        graph.outputs = [graph.value("first")]
        return ir.Program(name=self.name, classes=(RankClass((0,), ops=graph),))


def _constant(graph: ir.Graph, name: str, number: int) -> Any:  # noqa: ANN401 - a value
    attributes: dict[str, ir.AttrValue] = {
        "dtype": ir.DTYPES["i64"],
        "shape": (1,),
        "elements": (number,),
    }
    return graph.add("constant", (), (f"cut.{name}",), attributes).results[0]


def _record(table: ListedTable) -> ir.Record:
    whole = float(table.pooling).is_integer()
    found: dict[str, ir.AttrValue] = {
        "rows": table.rows,
        "dim": table.dim,
        "pooling": int(table.pooling) if whole else table.pooling,
    }
    return ir.Record(
        {**found, "popularity": table.popularity} if table.popularity else found
    )


def is_table_list(text: str) -> bool:
    """Whether a model is such a file: its name ends in `.json`, or `.json:NAME`."""
    return _parts(text)[0].lower().endswith(".json")


def _parts(text: str) -> tuple[str, str]:
    path, mark, name = text.rpartition(".json:")
    return (f"{path}.json", name) if mark else (text, "")


def read_table_list(text: str) -> TableList:
    """Read `FILE.json` or `FILE.json:NAME`."""
    path, name = _parts(text)
    if not os.path.lexists(path):
        msg = f"no file {path!r}"
        raise ir.UsageError(msg)
    content = read_text(Path(path), ir.PerfcError, "a JSON file")
    document = ir.parse_json(content, ir.PerfcError, path, "a JSON file")
    return _Reader(path).read(_fields(document), name)


@attrs.frozen
class _Reader:
    """A file, and what its errors begin with."""

    path: str

    def read(self, document: Mapping[str, Any], name: str) -> TableList:
        """Return the list of that name, or the only one."""
        lists = {k: v for k, v in document.items() if "tables" in _fields(v)}
        if "tables" in document:
            lists = {Path(self.path).stem: document}
        if not name and len(lists) == 1:
            (name,) = lists
        if name in lists:
            return self._list(name, _fields(lists[name]))
        if not lists:
            self._refuse('expected {"tables": [{"rows": N, "dim": N, "pooling": N}]}')
        known = ", ".join(lists)
        problem = f"no list {name!r}" if name else "several lists"
        msg = f"{self.path}: {problem}; say which as {self.path}:NAME, of {known}"
        raise ir.UsageError(msg)

    def _list(self, name: str, fields: Mapping[str, Any]) -> TableList:
        listed = fields["tables"]
        if not isinstance(listed, list) or not listed:
            self._refuse(f"'tables' of {name!r} is no list with tables in it")
        entries = cast("list[object]", listed)
        tables = (t for n, e in enumerate(entries) for t in self._tables(n, e))
        found = [*islice(tables, _MOST_TABLES + 1)]
        if len(found) > _MOST_TABLES:
            self._refuse(f"more than {_MOST_TABLES:,} tables, with their counts")
        name_of_most, times = Counter(t.name for t in found).most_common(1)[0]
        if times > 1:
            self._refuse(f"{times} tables are called {name_of_most!r}")
        kinds = sorted({table.dtype for table in found})
        if len(kinds) > 1:
            self._refuse(f"tables of {' and '.join(kinds)}; they must be alike")
        batch = fields.get("batch")
        if batch is not None:
            batch = int(self._number(batch, "batch", least=1))
        return TableList(name, tuple(found), batch)

    def _tables(self, number: int, entry: object) -> Iterator[ListedTable]:
        fields, where = _fields(entry), f"table {number}"
        if not fields:
            self._refuse(f"{where} is no object")
        name = fields.get("name", f"t{number}")
        if not isinstance(name, str) or not name:
            self._refuse(f"{where}: its name is {name!r}")
        count = int(self._number(fields.get("count", 1), f"{where}: count", least=1))
        pooling = fields.get("pooling", fields.get("hotness", 1))
        popularity = fields.get("popularity", "")
        if not isinstance(popularity, str):
            self._refuse(f"{where}: popularity {popularity!r} is no text")
        table = ListedTable(
            name=name,
            rows=int(self._number(fields.get("rows"), f"{where}: rows", least=1)),
            dim=int(self._number(fields.get("dim"), f"{where}: dim", least=1)),
            pooling=self._number(pooling, f"{where}: pooling"),
            dtype=self._dtype(fields.get("dtype", "fp32"), where),
            popularity="" if popularity == "uniform" else popularity,
        )
        for copy in range(count):
            suffix = f".{copy}" if count > 1 else ""
            yield attrs.evolve(table, name=f"{name}{suffix}")

    def _dtype(self, found: object, where: str) -> str:
        if not isinstance(found, str) or found not in _TYPES:
            self._refuse(f"{where}: dtype {found!r} is none of {', '.join(_TYPES)}")
        return found

    def _number(self, found: object, what: str, least: int = 0) -> float:
        """Return a number; whole if *least* is 1, else above 0."""
        usable = isinstance(found, int | float) and not isinstance(found, bool)
        number = float(found) if usable else math.nan  # type: ignore[arg-type]
        whole = not least or number.is_integer()
        if not (0 < number < _LARGEST and number >= least and whole):
            wanted = "a whole number of at least 1" if least else "a number above 0"
            self._refuse(f"{what} is {found!r}, expected {wanted}")
        return number

    def _refuse(self, problem: str) -> NoReturn:
        msg = f"{self.path}: {problem}"
        raise ir.PerfcError(msg)


def _fields(found: object) -> Mapping[str, Any]:
    """Return the fields of a JSON object; of anything else none."""
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
