"""Names of modules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile


def common_name(names: Sequence[str]) -> str:
    """Return one name for several modules, with `*` for what differs.

    `layer.0.norm` and `layer.1.norm` are `layer.*.norm`; names of more parts than
    the shortest end in `.*`.
    """
    parts = sorted({tuple(name.split(".")) for name in names})
    columns = zip(*parts, strict=False)
    shortest, longest = min(map(len, parts)), max(map(len, parts))
    ending = [] if shortest == longest else ["*"]
    return ".".join([*map(_common_part, columns), *ending])


def common_place(names: Sequence[str]) -> str:
    """Return the common name, or the first where nothing at its front is common."""
    common = common_name(names)
    return names[0] if common.startswith("*") else common


def _common_part(column: tuple[str, ...]) -> str:
    if _same(column):
        return column[0]
    places = takewhile(_same, zip(*column, strict=False))
    return "".join(chars[0] for chars in places).rstrip("0123456789") + "*"


def _same(items: Sequence[str]) -> bool:
    return len(set(items)) == 1
