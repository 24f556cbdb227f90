"""Attribute values: plain scalars, dtypes, symbols, and nested records."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping
from typing import Any, TypeAlias, TypeGuard, TypeVar, overload

from perfc.ir.dims import Dim, Expr
from perfc.ir.support import VerifyError, quote, word_text
from perfc.ir.types import DType

T = TypeVar("T")
AttrValue: TypeAlias = (
    "bool | int | float | str | Expr | DType | Record | tuple[AttrValue, ...] | None"
)
"""What an attribute may be."""


class Record(Mapping[str, AttrValue]):
    """An immutable, hashable mapping of attribute names to values.

    An embedding bag carries its tables as a tuple of records; a record may hold
    records. Two records are equal when their items are, in any order.
    """

    __slots__ = ("_hash", "_items", "_lists", "_symbolic", "checked_for", "reader")

    reader: Callable[..., Any]
    """What `get` does, three times as soon: for who reads many items."""

    checked_for: str
    """Whose declaration (`perfc.ir.kernels`) it was found to keep to; "" for none."""

    def __init__(self, items: Mapping[str, AttrValue] | None = None) -> None:
        """Copy *items*."""
        self._items: dict[str, AttrValue] = dict(items or {})
        self.reader = self._items.get
        self._hash: int | None = None
        self._symbolic: bool | None = None
        self.checked_for = ""
        self._lists: dict[str, tuple[Record, ...]] = {}

    def __getitem__(self, name: str) -> AttrValue:
        return self._items[name]

    def __contains__(self, name: object) -> bool:
        return name in self._items

    @overload
    def get(self, key: str, /) -> AttrValue: ...

    @overload
    def get(self, key: str, default: AttrValue | T, /) -> AttrValue | T: ...

    def get(self, key: str, default: object = None, /) -> object:
        """Return an item, or *default*; quicker than what `Mapping` has."""
        return self._items.get(key, default)

    def items(self) -> ItemsView[str, AttrValue]:
        """Return names with values; quicker than what `Mapping` has, as is `keys`."""
        return self._items.items()

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._items.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._items.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Record) and self._items == other._items

    def __repr__(self) -> str:
        return format_attribute(self)

    @property
    def is_symbolic(self) -> bool:
        """Whether a symbol stands anywhere in the values."""
        if self._symbolic is None:
            self._symbolic = any(map(_is_symbolic, self._items.values()))
        return self._symbolic

    def updated(self, **changes: AttrValue) -> Record:
        """Return a copy with *changes* put in."""
        return Record({**self._items, **changes})

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an int attribute; `none` and a missing one are *default*."""
        value = self._items.get(name)
        if value is None:  # not by `_get`: integers are asked for most
            value = default
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._unlike(name, "an integer")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string attribute."""
        value = self._get(name, default)
        if not isinstance(value, str):
            raise self._unlike(name, "a string")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a bool attribute."""
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise self._unlike(name, "true or false")
        return value

    def dtype(self, name: str) -> DType:
        """Return an element-type attribute."""
        value = self._items.get(name)
        if not isinstance(value, DType):
            raise self._unlike(name, "an element type")
        return value

    def integers(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Return a tuple-of-int attribute."""
        values = self._get(name, default)
        if isinstance(values, tuple):
            found = tuple(
                v for v in values if isinstance(v, int) and not isinstance(v, bool)
            )
            if len(found) == len(values):
                return found
        raise self._unlike(name, "a list of integers")

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a tuple-of-string attribute; nothing if it is absent."""
        if name not in self._items:
            return ()
        values = self._get(name, ())
        if isinstance(values, tuple):
            found = tuple(v for v in values if isinstance(v, str))
            if len(found) == len(values):
                return found
        raise self._unlike(name, "a list of strings")

    def dims(self, name: str) -> tuple[Dim, ...]:
        """Return a tuple attribute of integers and expressions."""
        values = self._items.get(name)
        if isinstance(values, tuple):
            found = tuple(v for v in values if isinstance(v, int | Expr))
            if len(found) == len(values):
                return found
        raise self._unlike(name, "a list of dimensions")

    def records(self, name: str) -> tuple[Record, ...]:
        """Return a tuple-of-records attribute."""
        found = self._lists.get(name)
        if found is None:
            values = self._get(name, ())
            if not isinstance(values, tuple) or not _all_records(values):
                raise self._unlike(name, "a list of records")
            found = self._lists[name] = values
        return found

    def _get(self, name: str, default: AttrValue) -> AttrValue:
        value = self._items.get(name)
        return default if value is None else value

    def _unlike(self, name: str, expected: str) -> VerifyError:
        value = self._items.get(name)
        found = "missing" if value is None else format_attribute(value)
        return VerifyError(f"attribute {name!r} is {found}, expected {expected}")


EMPTY = Record()
"""A record without keys."""


def _all_records(values: tuple[AttrValue, ...]) -> TypeGuard[tuple[Record, ...]]:
    return all(isinstance(value, Record) for value in values)


def _is_symbolic(value: AttrValue) -> bool:
    if isinstance(value, Record):
        return value.is_symbolic
    if isinstance(value, tuple):
        return any(map(_is_symbolic, value))
    return isinstance(value, Expr)


def format_attribute(value: Any) -> str:  # noqa: ANN401 - one per kind
    """Write an attribute value as perfc assembly."""
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return float.__repr__(value)  # not that of a numpy float
        case str():
            return quote(value)
        case Expr():
            return f"<{value}>"
        case DType():
            return f"!{value}"
        case Record():
            return "{" + format_items(value) + "}"
        case _:
            return "[" + ", ".join(map(format_attribute, value)) + "]"


def format_items(record: Mapping[str, AttrValue]) -> str:
    """Write `name = value` pairs, in insertion order."""
    return ", ".join(
        f"{word_text(k)} = {format_attribute(v)}" for k, v in record.items()
    )
