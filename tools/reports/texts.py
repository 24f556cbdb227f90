"""Text that several verbs print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def columns_text(rows: Iterable[Sequence[str]]) -> str:
    """Return left-aligned columns, the last one free."""
    listed = [tuple(row) for row in rows]
    if not listed:
        return ""
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    lines = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        for row in listed
    ]
    return "\n".join(line.rstrip() for line in lines)
