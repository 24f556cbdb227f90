"""JSON with the types that a reader expects, or a line that says where it has others.

`torch/_export/serde/schema.py` of PyTorch says which fields there are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

import attrs

from perfc.ir.support import UnsupportedModelError


@attrs.frozen
class Fields:
    """One JSON object.

    Attributes:
        values: Its members.
        where: What it is, for messages.

    """

    values: Mapping[str, Any]
    where: str

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string."""
        value = self.values.get(name, default)
        if not isinstance(value, str):
            raise self._unlike(name, "a string")
        return value

    def integer(self, name: str) -> int:
        """Return an integer."""
        value = self.values.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._unlike(name, "an integer")
        return value

    def record(self, name: str) -> Fields:
        """Return an object."""
        return self._record(self.values.get(name), name)

    def records(self, name: str) -> Iterator[Fields]:
        """Return the objects of a list."""
        values = self.values.get(name)
        if not isinstance(values, list):
            raise self._unlike(name, "a list")
        for index, value in enumerate(cast("list[object]", values)):
            yield self._record(value, f"{name}[{index}]")

    def members(self, name: str) -> Iterator[tuple[str, Fields]]:
        """Return the objects of an object, with their names."""
        values = self.record(name)
        for member in values.values:
            yield member, values.record(member)

    def only(self) -> tuple[str, Any]:
        """Return the one member of a union that is given."""
        given = [(n, v) for n, v in self.values.items() if v is not None]
        if len(given) != 1:
            names = ", ".join(repr(name)[:40] for name, _ in given[:4]) or "none"
            msg = f"{self.where} should be one of several kinds, and has {names}"
            raise UnsupportedModelError(msg)
        return given[0]

    def _record(self, value: object, name: str) -> Fields:
        if not isinstance(value, dict):
            raise self._unlike(name, "an object")
        return Fields(cast("dict[str, Any]", value), f"{self.where}.{name}"[:200])

    def _unlike(self, name: str, expected: str) -> UnsupportedModelError:
        value = self.values.get(name.partition("[")[0])
        found = "missing" if value is None else json.dumps(value)[:60]
        return UnsupportedModelError(
            f"{self.where}: {name!r} is {found}, expected {expected}"
        )
