"""Lists of tables and layers that have another type than the rest: `top.0:fp16`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import attrs

from perfc.ir import UsageError
from perfc.passes.precision.stored_types import LINEAR_TYPES, TABLE_TYPES

TABLE, LINEAR = "table", "linear"
"""Kinds of what can be stored in another type."""

_SHOWN = 5


@attrs.frozen
class Kept:
    """A pattern of names, and the type of what it matches."""

    pattern: str
    dtype: str

    def matches(self, names: Iterable[str]) -> bool:
        """Whether it is one of these names, or of a module around one."""
        return any(
            fnmatchcase(name, self.pattern) or fnmatchcase(name, f"{self.pattern}.*")
            for name in names
        )

    def dtype_of(self, kind: str, name: str) -> str:
        """Return the type for what is of a kind."""
        known = TABLE_TYPES if kind == TABLE else tuple(LINEAR_TYPES)
        if self.dtype not in known:
            msg = (
                f"keep {self.pattern}:{self.dtype}: {name} is a {_WORDS[kind]}, whose "
                f"types are {', '.join(known)}"
            )
            raise UsageError(msg)
        return self.dtype


_WORDS = {TABLE: "table", LINEAR: "linear layer"}


def read_kept(text: str) -> tuple[Kept, ...]:
    """Read `top.0,top.8:fp16`: a pattern without a type has that of the next one."""
    found: list[Kept] = []
    waiting: list[str] = []
    for item in filter(None, map(str.strip, text.split(","))):
        pattern, colon, dtype = item.rpartition(":")
        if not colon:
            waiting.append(item)
            continue
        if not pattern or dtype not in {*TABLE_TYPES, *LINEAR_TYPES}:
            known = ", ".join(dict.fromkeys((*TABLE_TYPES, *LINEAR_TYPES)))
            msg = f"keep {item!r}: expected PATTERN:TYPE, TYPE one of {known}"
            raise UsageError(msg)
        found += [Kept(each, dtype) for each in (*waiting, pattern)]
        waiting = []
    if waiting:
        msg = f"keep {waiting[0]!r} says no type: expected PATTERN:TYPE, as top.0:fp16"
        raise UsageError(msg)
    return tuple(found)


def check_matched(
    kept: Sequence[Kept], names: Sequence[Sequence[str]], model: str
) -> None:
    """Refuse patterns that match none of the names of anything."""
    for one in kept:
        if any(one.matches(each) for each in names):
            continue
        first = [each[0] for each in names]
        close = difflib.get_close_matches(one.pattern, first, n=1)
        shown = ", ".join(first[:_SHOWN]) + (", ..." if len(first) > _SHOWN else "")
        hint = f"did you mean {close[0]}?" if close else f"it has {shown or 'none'}"
        msg = (
            f"keep {one.pattern}:{one.dtype} matches no table and no linear layer of "
            f"{model}; {hint}"
        )
        raise UsageError(msg)
