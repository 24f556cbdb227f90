"""Constants of the models: what each is, where it is from, and of what it holds.

A file `fitted/constants/NAME.toml` has a table for each constant of a room:

    [inline_share]
    value = 0.31             # a number, a list, or a table of them; units in the name
    kind = "single"          # one of `KINDS`
    source = "..."           # who says so, or why it was chosen
    rows = "..."             # what it was fitted to or read off, if it was
    on = ["9.0"]             # where it holds, if not everywhere: `Device.words`
    but = ["Hopper"]         # where it does not
    by = "architecture"      # what the keys of its table are, if they are of devices
    sets = ["memcpy kind=h2d"]  # kernels whose time it sets: see `Constant.sets`

An `on` above all tables is of those that have none. Names that begin with `sigma` are
of intervals, all others of times. What `make fit` writes lies beside the folder and has
one source a file.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn, TypeAlias, cast

import attrs

from perfc.ir import PerfcError

CONSTANTS_FOLDER = Path(__file__).parent / "fitted" / "constants"
"""Folder of the constants' files, a file a room."""

KINDS = ("fitted", "published", "single", "assumed")
"""Fitted to rows; of a paper, a manual or source code; read off one case; chosen."""

Value: TypeAlias = float | tuple["Value", ...] | Mapping[str, "Value"]
"""A number, a list or a table; integers stay integers."""

_KEYS = ("value", "kind", "source", "rows", "on", "but", "by", "sets")
_OF_ROWS = frozenset({"fitted", "single"})
_BY = ("architecture", "compute_capability")


@attrs.frozen
class Constant:
    """One constant.

    Attributes:
        name: Its name within its file.
        value: A number, or several that have one source.
        kind: One of `KINDS`.
        source: Who says so, or why it was chosen; one line.
        rows: What it was fitted to or read off; empty if nothing.
        on: Devices that it is of, by `Device.words`; empty for all.
        but: Those that it is not of.
        by: What the keys of its table name, of `architecture` and
            `compute_capability`; empty if they are no devices.
        sets: Kernels whose time it sets, with nothing fitted while it had its value:
            cost models, then names and what kernels have under them, all of which must
            be so, as `conv phase=backward_data|backward_weight` or `memcpy bytes<=9`.
            Constants of kind `fitted` and `published` need none.

    """

    name: str
    value: Value
    kind: str
    source: str
    rows: str
    on: tuple[str, ...] = ()
    but: tuple[str, ...] = ()
    by: str = ""
    sets: tuple[str, ...] = ()

    def sets_time_of(self, model: str, kernel: Callable[[str], object]) -> bool:
        """Whether it sets the time of a kernel.

        Args:
            model: The cost model that prices it.
            kernel: Says what the kernel has under a name.

        """
        for entry in self.sets:
            models, *others = entry.split()
            if model in models.split("|") and all(_has(kernel, o) for o in others):
                return True
        return False

    def part(self, words: Collection[str]) -> Value | None:
        """Return the part of the value that holds on a device, by the device's words.

        Args:
            words: `Device.words`.

        """
        known = {*words}
        if (self.on and known.isdisjoint(self.on)) or not known.isdisjoint(self.but):
            return None
        if not self.by or not isinstance(self.value, Mapping):
            return self.value
        held = {key: value for key, value in self.value.items() if key in words}
        return MappingProxyType(held) if held else None


def _has(kernel: Callable[[str], object], wanted: str) -> bool:
    """Whether a kernel has under a name one of some words, or a number at most."""
    name, is_limit, most = wanted.partition("<=")
    if is_limit:
        found = kernel(name)
        return isinstance(found, (int, float)) and found <= float(most)
    name, _, words = wanted.partition("=")
    return str(kernel(name)) in words.split("|")


@attrs.frozen
class Constants:
    """The constants of a room, by name.

    Attributes:
        file: Name of the file, for errors.
        entries: What it has.

    """

    file: str
    entries: Mapping[str, Constant]

    def __iter__(self) -> Iterator[Constant]:
        """Go through them as the file has them."""
        return iter(self.entries.values())

    def number(self, name: str) -> float:
        """Return a constant that is a number."""
        return self._float(name, self._value(name))

    def integer(self, name: str) -> int:
        """Return a constant that is a whole number."""
        value = self._value(name)
        if not isinstance(value, int):
            self._refuse(name, "a whole number", value)
        return value

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return a constant that is a list of numbers."""
        return self._floats(name, self._value(name))

    def pair(self, name: str) -> tuple[float, float]:
        """Return a constant that is two numbers."""
        value = self.numbers(name)
        if len(value) != 2:  # noqa: PLR2004 - a pair
            self._refuse(name, "two numbers", value)
        return value[0], value[1]

    def table(self, name: str) -> Mapping[str, float]:
        """Return a constant that is a table of numbers."""
        items = self._items(name)
        return MappingProxyType({k: self._float(name, v) for k, v in items.items()})

    def lists(self, name: str) -> Mapping[str, tuple[float, ...]]:
        """Return a constant that is a table of lists of numbers."""
        items = self._items(name)
        return MappingProxyType({k: self._floats(name, v) for k, v in items.items()})

    def _value(self, name: str) -> Value:
        if name not in self.entries:
            known = ", ".join(sorted(self.entries))
            msg = f"{self.file}: no constant {name!r}; known are {known}"
            raise PerfcError(msg)
        return self.entries[name].value

    def _items(self, name: str) -> Mapping[str, Value]:
        value = self._value(name)
        if not isinstance(value, Mapping):
            self._refuse(name, "a table", value)
        return value

    def _floats(self, name: str, value: Value) -> tuple[float, ...]:
        if not isinstance(value, tuple):
            self._refuse(name, "a list of numbers", value)
        return tuple(self._float(name, each) for each in value)

    def _float(self, name: str, value: Value) -> float:
        if not isinstance(value, (int, float)):
            self._refuse(name, "a number", value)
        return float(value)

    def _refuse(self, name: str, expected: str, value: Value) -> NoReturn:
        found = cast("object", dict(value) if isinstance(value, Mapping) else value)
        msg = f"{self.file}: {name}: expected {expected}, found {found!r}"
        raise PerfcError(msg)


@functools.cache
def constants(name: str) -> Constants:
    """Return the constants of a room, read when first asked for."""
    return read_constants(CONSTANTS_FOLDER / f"{name}.toml")


def constant_files() -> list[str]:
    """Return the names of all files, sorted."""
    return sorted(path.stem for path in CONSTANTS_FOLDER.glob("*.toml"))


def read_constants(path: Path) -> Constants:
    """Read a file of constants."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"{path.name}: cannot be read as constants: {error}"
        raise PerfcError(msg) from error
    file, on = path.name, tables.pop("on", [])
    entries = {name: _constant(file, name, t, on) for name, t in tables.items()}
    return Constants(file, MappingProxyType(entries))


def _constant(file: str, name: str, table: object, on: object) -> Constant:
    fields: dict[str, object] = {"rows": "", "on": on, "but": [], "by": "", "sets": []}
    fields |= cast("dict[str, object]", table) if isinstance(table, dict) else {}
    for problem in _problems(fields):
        msg = f"{file}: {name}: {problem}"
        raise PerfcError(msg)
    return Constant(
        name,
        _frozen(fields["value"]),
        str(fields["kind"]),
        _line(fields["source"]),
        _line(fields["rows"]),
        _words(fields["on"]),
        _words(fields["but"]),
        str(fields["by"]),
        _words(fields["sets"]),
    )


def _problems(fields: Mapping[str, object]) -> Iterator[str]:
    if missing := [key for key in _KEYS if key not in fields]:
        yield f"{', '.join(missing)} missing"
    if unknown := fields.keys() - {*_KEYS}:
        yield f"{min(unknown)} is not known; a constant has {', '.join(_KEYS)}"
    if (kind := fields["kind"]) not in KINDS:
        yield f"kind is one of {', '.join(KINDS)}, not {kind!r}"
    if not _line(fields["source"]):
        yield "source is empty; say who says so, or why it was chosen"
    if bool(_line(fields["rows"])) != (kind in _OF_ROWS):
        expected = "to what" if kind in _OF_ROWS else "nothing"
        yield f"kind is {kind}, so rows is expected to say {expected}"
    if (by := fields["by"]) not in {"", *_BY}:
        yield f"by is one of {', '.join(_BY)}, not {by!r}"
    for key in ("on", "but", "sets"):
        if not isinstance(words := fields[key], list):
            yield f"{key} is a list of words, not {words!r}"
    if not _is_value(value := fields["value"]):
        yield f"value is of numbers, not {value!r}"


def _words(listed: object) -> tuple[str, ...]:
    return tuple(cast("list[str]", listed))


def _line(text: object) -> str:
    return " ".join(str(text).split())


def _is_value(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_is_value, cast("list[object]", value)))
    if isinstance(value, dict):
        return all(map(_is_value, cast("dict[str, object]", value).values()))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _frozen(value: object) -> Value:
    """Return a value of TOML that nobody can change."""
    if isinstance(value, list):
        return tuple(map(_frozen, cast("list[object]", value)))
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return MappingProxyType({key: _frozen(each) for key, each in items})
    return cast("float", value)
