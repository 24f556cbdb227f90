"""What every verb answers with: a table, ranked plans, remarks and a document."""

from __future__ import annotations

import abc
import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import attrs

from perfc.ir import Diagnostic, support
from perfc.ir.support import Json, path_text, printable
from perfc.tools import pages

if TYPE_CHECKING:
    from perfc.passes.timing import TimeErrors
    from perfc.tools.pages import Part
    from perfc.tools.reports.priced_plan import PricedPlan

Row: TypeAlias = Mapping[str, Any]


@attrs.frozen(eq=False)
class VerbResult(abc.ABC):
    """The result of a verb. A class of it is frozen, pickled, and its `repr` one line.

    Attributes:
        schema: Name and version of the document. Keys are added to it, never changed.

    """

    schema: ClassVar[str]

    @property
    @abc.abstractmethod
    def rows(self) -> Sequence[Row]:
        """The table: the same keys in each row, units in their names."""

    @property
    def csv_rows(self) -> Sequence[Row]:
        """The rows of a spreadsheet; a table within one, name by name."""
        return [dict(_cells(row)) for row in self.rows]

    @functools.cached_property
    def plans(self) -> tuple[PricedPlan, ...]:
        """What a search ranked, the best first; empty of a verb without a search."""
        from perfc.tools.reports.priced_plan import with_probabilities

        priced = [*self._priced()]
        return with_probabilities([one for one, _ in priced], [e for _, e in priced])

    def _priced(self) -> Iterable[tuple[PricedPlan, TimeErrors | None]]:
        return ()

    @property
    @abc.abstractmethod
    def diagnostics(self) -> Sequence[Diagnostic]:
        """What there is to say about the input and the result."""

    @abc.abstractmethod
    def _document(self) -> Json:
        """Return the document but for `schema` and `diagnostics`."""

    @property
    def parts(self) -> Sequence[Part]:
        """What there is to say to people, in all formats but JSON and CSV."""
        return [pages.Preformatted(self._text().rstrip("\n"))]

    def _text(self) -> str:
        """Return the answer as the command line prints it."""
        return pages.text_of(self.parts) + "\n"

    def to_dict(self) -> Json:
        """Return the document: data of its own, as JSON has it, keys sorted."""
        found: Json = _sorted({**self._head(), **self._document()})
        return found

    def _head(self) -> Json:
        """Return the schema and the remarks, which every document has."""
        remarks = [one.to_dict() for one in self.diagnostics]
        return {"schema": self.schema, "diagnostics": remarks}

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the document as JSON text, and write it to *path* if given."""
        text = format_json({**self._head(), **self._document()})
        if path is not None:
            support.write_file(Path(path_text("path", path)), text)
        return text

    def __str__(self) -> str:
        return printable(self._text())

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(str(self))}</pre>"


def format_json(value: Json) -> str:
    """Write JSON the way results are: keys sorted, indented, final newline."""
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _sorted(value: Any) -> Any:  # noqa: ANN401 - any part of a document
    """Return a copy whose mappings are in the order of their keys."""
    if isinstance(value, dict):
        entries = cast("Json", value)
        return {key: _sorted(entries[key]) for key in sorted(entries)}
    if isinstance(value, list | tuple):
        return [_sorted(one) for one in cast("Sequence[Any]", value)]
    return value


def _cells(row: Row) -> Iterator[tuple[str, object]]:
    """Yield the columns of a row, and of tables within it: `bound_shares.host`."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            inner = cast("Row", value)
            yield from ((f"{name}.{part}", cell) for part, cell in _cells(inner))
        else:
            yield name, value
