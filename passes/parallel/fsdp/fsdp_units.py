"""Modules that `fsdp` wraps: the units whose parameters are gathered together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase


def unit_of(name: str, patterns: Iterable[str]) -> str:
    """Return the path of the unit that a parameter is of; "" for the root."""
    parts = name.split(".")
    for pattern in patterns:
        wanted = pattern.split(".")
        if len(parts) > len(wanted) and all(map(fnmatchcase, parts, wanted)):
            return ".".join(parts[: len(wanted)])
    return ""


def repeated_blocks(names: Sequence[str]) -> list[str]:
    """Return patterns of the modules that lists of a model hold.

    Modules of a list are called by numbers; a list of one is none, and lists inside
    another belong to its modules. Where there are lists of blocks, those of single
    layers, as of a head, stay with the root, as with a policy that wraps blocks.

    Args:
        names: Paths of parameters.

    """
    members: dict[str, set[str]] = {}
    for name in names:
        for path, member, _ in _numbered(name):
            members.setdefault(path, set()).add(member)
    layers: dict[str, None] = {}
    blocks: dict[str, None] = {}
    for name in names:
        outermost = next((n for n in _numbered(name) if len(members[n[0]]) > 1), None)
        if outermost is not None:
            path, _, below = outermost
            layers[path] = None
            if below:
                blocks[path] = None
    return [f"{path}.[0-9]*".removeprefix(".") for path in blocks or layers]


def _numbered(name: str) -> Iterator[tuple[str, str, bool]]:
    """Yield lists above a parameter: their path, the member, if it has modules."""
    parts = name.split(".")
    for place, part in enumerate(parts[:-1]):
        if part.isdigit():
            below = len(parts) > place + 2
            yield ".".join(parts[:place]), part, below


_SHOWN = 4


def told_units(names: Sequence[str]) -> str:
    """Say what the units are."""
    if not names:
        return "one unit, the root: there is no list of modules with parameters"
    more = f", … ({len(names)} in all)" if len(names) > _SHOWN else ""
    return f"{len(names)} units, and the root: {', '.join(names[:_SHOWN])}{more}"
