"""The rows of a sweep as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from perfc.ir import Diagnostic
from perfc.tools.reports import columns_text, format_bytes, format_us
from perfc.tools.sweeping.selection import best_first
from perfc.tools.sweeping.space import ERROR, INTERVAL, METRICS, Row, Space

_HEADINGS = {
    "time_us": "time",
    **dict(zip(INTERVAL, ("time, 5 %", "time, 95 %"), strict=True)),
    "samples_per_s": "samples/s",
    "samples_per_j": "samples/J",
    "usd_per_million_samples": "$/M samples",
    "peak_memory_bytes": "memory",
    "device_only_us": "device alone",
    "gpu_active_us": "GPU busy",
    "bound": "bound by",
}
_LARGE = 1e4
"""Numbers from here on have no decimals."""

_REASONS = 10
"""Errors that are listed below the table."""


def sweep_text(
    space: Space,
    rows: Sequence[Row],
    errors: Counter[str],
    remarks: Sequence[Diagnostic],
) -> str:
    """Return a table of rows that have numbers, and below why others have none."""
    priced = [row for row in rows if not row[ERROR]]
    parts = [_table(space, best_first(priced, space.metrics))]
    parts += ["\n".join(_refused(errors)), "\n".join(_told(remarks))]
    return "\n\n".join(part for part in parts if part) + "\n"


def shown_columns(space: Space, rows: Sequence[Row]) -> list[str]:
    """Return the columns of a table: what varied, the known metrics, the bound."""
    known = [m for m in space.metrics if any(row[m] is not None for row in rows)]
    return [*space.varied, *known, "bound"]


def heading(column: str) -> str:
    """Return the heading of a column."""
    return _HEADINGS.get(column, column)


def cell_text(row: Row, column: str) -> str:
    """Return a cell as people read it."""
    value = row[column]
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) or column in METRICS:
        return number_text(column, value)
    return str(value)


def number_text(column: str, value: float) -> str:
    """Return a number of a column as people read it."""
    if column.endswith("_us") or column in INTERVAL:
        return format_us(value)
    if column.endswith("_bytes"):
        return format_bytes(value)
    return f"{value:,.0f}" if abs(value) >= _LARGE else f"{value:,.4g}"


def _table(space: Space, rows: Sequence[Row]) -> str:
    if not rows:
        return "No configuration to show."
    columns = shown_columns(space, rows)
    lines = [[heading(column) for column in columns]]
    lines += [[cell_text(row, column) for column in columns] for row in rows]
    if "time_us" in columns:
        place = columns.index("time_us") + 1
        intervals = [
            "90 % interval",
            *(" to ".join(cell_text(row, name) for name in INTERVAL) for row in rows),
        ]
        for line, interval in zip(lines, intervals, strict=True):
            line.insert(place, interval)
    return columns_text(lines)


def _refused(errors: Counter[str]) -> Iterator[str]:
    """Say what cannot be, each reason once, the commonest first."""
    if errors:
        several = "s" if errors.total() > 1 else ""
        yield f"{errors.total():,} configuration{several} cannot be:"
    for reason, count in errors.most_common(_REASONS):
        yield f"  {count:,}: {reason}"
    rest = sum(count for _, count in errors.most_common()[_REASONS:])
    if rest:
        yield f"  {rest:,} for other reasons, which the rows have"


def _told(remarks: Sequence[Diagnostic]) -> Iterator[str]:
    for remark in remarks:
        yield f"{remark.level.value}: {remark.message} [{remark.code}]"
