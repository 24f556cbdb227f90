"""Presets: a machine, its host and the loop that runs there, under one name.

A preset is a TOML file. Its keys are options of the command line without their dashes
(`target`, `mode`, `inputs`, `overheads`, …); the table `set` has fields of the target's
sheet, as `--set` gives them, and `pass-options` options of passes, which hold where
the pass runs. A value is given plainly, or with its source, as in sheets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, TypeAlias, cast

import attrs

from perfc.costmodels.sheets import PresetError, find_preset, is_path
from perfc.ir import UsageError
from perfc.ir.support import brief, path_text
from perfc.passes.pipeline_spec import format_value, read_pipeline
from perfc.tools.given import check_known, closest, read_field
from perfc.tools.request import OPTIONS, Request
from perfc.tools.sheet_options import SHEET_OPTIONS, with_sheet_options

_Table: TypeAlias = Mapping[str, object]
_Sourced: TypeAlias = tuple[object, str]

PRESET_SCHEMA = "perfc.preset/1"
_SET = "set"
_OPTIONS_OF = "pass-options"
_SOURCES = "sources"
_TEXTS = ("schema", "name", "summary", "source")
_PATHS = frozenset({"target", "overheads"})
"""Options that may name a file, which lies beside the preset's."""

_ALONE = frozenset({"pipeline", "overrides", "preset"})
"""Fields that no key has: a pipeline has its own passes, `set` is a table."""

FIELDS: Mapping[str, str] = {
    option.flag.removeprefix("--"): name
    for name, option in OPTIONS.items()
    if name not in _ALONE
}
"""The field of a request for each key."""

_KEYS = (*FIELDS, *SHEET_OPTIONS, _SET, _OPTIONS_OF, _SOURCES, *_TEXTS)


@attrs.frozen(kw_only=True)
class PresetLine:
    """One thing that a preset says.

    Attributes:
        key: An option, `set.FIELD`, or `pass-options.PASS.OPTION`.
        text: Its value, as the command line writes it.
        source: Where that comes from.

    """

    key: str
    text: str
    source: str


@attrs.frozen(kw_only=True)
class Preset:
    """Options of a request under one name.

    Attributes:
        name: Its name: of a file that has none, the file's.
        summary: What it is of.
        fields: Fields of a request and their values; `overrides` are those of `set`.
        passes: Options of passes, as text, by the pass; they hold where it runs.
        lines: What it says, in order, and where that comes from.

    """

    __repr__ = brief

    name: str
    summary: str
    fields: Mapping[str, Any]
    passes: Mapping[str, Mapping[str, str]]
    lines: tuple[PresetLine, ...]


def load_preset(name_or_path: str) -> Preset:
    """Read a preset by its name, or a TOML file by its path."""
    name_or_path = path_text("preset", name_or_path)
    where, document = find_preset(name_or_path)
    folder = PurePath(name_or_path).parent if is_path(name_or_path) else None
    try:
        return _Reader(where, document, folder).preset()
    except UsageError as error:
        msg = f"{where}: {error}"
        raise PresetError(msg) from None


@attrs.frozen
class _Reader:
    """Reads the tables of one preset.

    Attributes:
        where: What errors call it.
        document: Its tables.
        folder: Where its file lies; None for one that has none.

    """

    where: str
    document: _Table
    folder: PurePath | None

    def preset(self) -> Preset:
        """Read it."""
        for key in self.document:
            if key not in _KEYS:
                msg = f"unknown key {key!r}{closest(key, _KEYS)}; a preset has "
                raise UsageError(msg + ", ".join(sorted(_KEYS)))
        schema = self.document.get("schema", PRESET_SCHEMA)
        if schema != PRESET_SCHEMA:
            msg = f"schema is {schema!r}, expected {PRESET_SCHEMA!r}"
            raise UsageError(msg)
        options = dict(self._options())
        overrides = dict(self._overrides())
        passes = {
            name: dict(self._options_of(name, table))
            for name, table in self._table(_OPTIONS_OF).items()
        }
        fields = {FIELDS[key]: value for key, (value, _) in options.items()}
        fields["overrides"] = {field: text for field, (text, _) in overrides.items()}
        return Preset(
            name=self._text("name") or self.where.removeprefix("preset "),
            summary=self._text("summary"),
            fields=fields,
            passes={
                name: {key: str(text) for key, (text, _) in found.items()}
                for name, found in passes.items()
            },
            lines=tuple(_lines(options, overrides, passes)),
        )

    def _text(self, key: str) -> str:
        value = self.document.get(key, "")
        if not isinstance(value, str):
            msg = f"{key} is {value!r}, expected a text"
            raise UsageError(msg)
        return value

    def _table(self, key: str) -> _Table:
        return _as_table(key, self.document.get(key, {}))

    def _options(self) -> Iterator[tuple[str, _Sourced]]:
        for key, field in FIELDS.items():
            if key not in self.document:
                continue
            value, source = self._sourced(key, self.document[key])
            found = attrs.fields_dict(Request)[field].metadata["read"](key, value)
            if OPTIONS[field].choices:
                check_known(key, found, OPTIONS[field].choices)
            if key in _PATHS:
                found = self._placed(str(found))
            yield key, (found, source)

    def _placed(self, text: str) -> str:
        """Return the path of a file beside the preset's; a name stays."""
        if self.folder is None or not is_path(text):
            return text
        return str(self.folder / text)

    def _overrides(self) -> Iterator[tuple[str, _Sourced]]:
        for field, value in _leaves(self._table(_SET)):
            found, source = self._sourced(f"{_SET}.{field}", value)
            yield field, (read_field(f"{_SET}.{field}", found), source)
        for key, known in SHEET_OPTIONS.items():
            if key in self.document:
                found, source = self._sourced(key, self.document[key])
                if known.takes_file and isinstance(found, str):
                    found = self._placed(found)
                text = with_sheet_options({}, {key: found})[known.field]
                yield known.field, (text, source)

    def _options_of(self, name: str, table: object) -> Iterator[tuple[str, _Sourced]]:
        where = f"{_OPTIONS_OF}.{name}"
        for key, value in _as_table(where, table).items():
            found, source = self._sourced(f"{where}.{key}", value)
            option = key.replace("_", "-")
            text = _text_of(f"{where}.{key}", found)
            read_pipeline(f"{name}{{{option}={text}}}")
            yield option, (text, source)

    def _sourced(self, key: str, value: object) -> _Sourced:
        """Return a value and the text of its source."""
        table: _Table = {}
        if isinstance(value, Mapping):
            table = cast("_Table", value)
        if {*table} != {"value", "source"}:
            return cast("Any", value), self._text("source") or self.where
        name, known = table["source"], self._table(_SOURCES)
        if not isinstance(name, str) or name not in known:
            msg = f"{key} has the source {name!r}, which [{_SOURCES}] does not have"
            raise UsageError(msg)
        return table["value"], str(known[name])


def _lines(
    options: Mapping[str, _Sourced],
    overrides: Mapping[str, _Sourced],
    passes: Mapping[str, Mapping[str, _Sourced]],
) -> Iterator[PresetLine]:
    named = [
        *options.items(),
        *((f"{_SET}.{field}", line) for field, line in overrides.items()),
        *(
            (f"{_OPTIONS_OF}.{name}.{key}", line)
            for name, found in passes.items()
            for key, line in found.items()
        ),
    ]
    for key, (value, source) in named:
        yield PresetLine(key=key, text=shown(value), source=source)


def shown(value: object) -> str:
    """Return a value of an option as the command line writes it."""
    if isinstance(value, tuple):
        return " ".join(map(str, cast("tuple[object, ...]", value)))
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return " ".join(f"{key}={one}" if key else str(one) for key, one in items)
    return str(value)


def _as_table(key: str, value: object) -> _Table:
    if not isinstance(value, Mapping):
        msg = f"{key} is {value!r}, expected a table [{key}]"
        raise UsageError(msg)
    return cast("_Table", value)


def _leaves(table: _Table, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield fields by their dotted names: TOML reads `gpu.x` as a table in one."""
    for key, value in table.items():
        inner = isinstance(value, Mapping) and "value" not in value
        if inner:
            yield from _leaves(cast("_Table", value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _text_of(key: str, value: object) -> str:
    """Return a value of a pass's option as text."""
    if isinstance(value, bool | int | float | str):
        return format_value(value)
    msg = f"{key} is {value!r}, expected a text, a number, true or false"
    raise UsageError(msg)
