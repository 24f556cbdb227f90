"""Launches that a prediction is off by, kernel by kernel."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.ir.support import Json
from perfc.tools.diffs.kernel_names import short_name
from perfc.tools.diffs.matching import Pair
from perfc.tools.diffs.side import SideNode
from perfc.tools.reports import format_us

_SHOWN = 10
"""Launches of a table."""

TRACE_US = 0.01
"""What a difference against a trace is shown from: times there are nanoseconds."""

_LONGEST = 32
"""Characters of a module in a table."""


def kernel_rows(pairs: Sequence[Pair]) -> list[Json]:
    """Return the launches of ops, those first that differ most.

    Of a prediction, kernels are what they compute; of a trace, their names. Times are
    those of the device.
    """
    rows = [
        {
            "op": pair.one.op,
            "module": pair.one.module,
            "phase": pair.one.phase,
            "base": pair.base.id if pair.base else None,
            "head": pair.head.id if pair.head else None,
            "base_kernels": _kernels(pair.base),
            "head_kernels": _kernels(pair.head),
            "base_us": pair.base.duration_us if pair.base else None,
            "head_us": pair.head.duration_us if pair.head else None,
            "delta_us": _device_us(pair.head) - _device_us(pair.base),
            "reason": pair.reason,
        }
        for pair in pairs
        if _kernels(pair.base) or _kernels(pair.head)
    ]
    return sorted(rows, key=lambda row: -abs(row["delta_us"]))


def kernel_table(pairs: Sequence[Pair]) -> list[tuple[str, ...]]:
    """Return the launches that a prediction is off by most, a heading first."""
    heading = ("op", "module", "base", "head", "change", "kernels", "reason")
    rows = [row for row in kernel_rows(pairs) if abs(row["delta_us"]) > TRACE_US]
    return [heading, *map(_cells, rows[:_SHOWN])]


def signed(us: float) -> str:
    """Write a difference of times."""
    return f"{'-' if us < 0 else '+'}{format_us(abs(us))}"


def _cells(row: Json) -> tuple[str, ...]:
    names = row["head_kernels"] or row["base_kernels"]
    more = f" +{len(names) - 1}" if len(names) > 1 else ""
    module = row["module"]
    if len(module) > _LONGEST:
        module = f"…{module[1 - _LONGEST :]}"
    times = (row["base_us"], row["head_us"])
    return (
        row["op"],
        module,
        *("-" if us is None else format_us(us) for us in times),
        signed(row["delta_us"]),
        f"{short_name(names[0])}{more}",
        row["reason"],
    )


def _kernels(node: SideNode | None) -> Sequence[str]:
    return () if node is None else [*(node.names or node.kernels)]


def _device_us(node: SideNode | None) -> float:
    return 0.0 if node is None or not _kernels(node) else node.duration_us
