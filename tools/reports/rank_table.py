"""The ranks of a report as a table to read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from perfc.ir.support import Json
from perfc.tools.reports import numbers

_ROWS = 8
_FEW = 4
"""Ranks that are listed one by one."""


def world_size(report: Json) -> int:
    """Return how many GPUs a report is about."""
    return sum(len(entry["ranks"]) for entry in report["ranks"])


def critical_rank(report: Json) -> int:
    """Return the first of the ranks that decide the time."""
    return next(int(e["ranks"][0]) for e in report["ranks"] if e["critical"])


def rank_rows(report: Json) -> list[tuple[str, ...]]:
    """Return a heading and a row per class of ranks, slowest first; none of one GPU."""
    if world_size(report) == 1:
        return []
    rows: list[tuple[str, ...]] = [
        ("rank", "", "time", "busy", "comm", "exposed", "waits", "late", "memory")
    ]
    entries = sorted(report["ranks"], key=lambda e: (not e["critical"], -e["time_us"]))
    for entry in entries[:_ROWS]:
        times = ("time_us", "compute_us", "comm_us", "exposed_comm_us")
        meetings = ("waiting_us", "late_us")
        rows.append(
            (
                format_ranks(entry["ranks"]),
                "critical" if entry["critical"] else "",
                *(numbers.format_us(entry[key]) for key in (*times, *meetings)),
                numbers.format_bytes(entry["peak_memory_bytes"]),
            )
        )
    if rest := entries[_ROWS:]:
        rows.append((f"{len(rest)} more", *[""] * (len(rows[0]) - 1)))
    return rows


def communication(report: Json) -> tuple[str, str]:
    """Return how long the critical rank communicates, and a remark; "" if alone."""
    summary, ranks = report["summary"], world_size(report)
    if ranks == 1:
        return "", ""
    exposed = numbers.format_share(summary["exposed_comm_us"], summary["time_us"])
    most = max(entry["imbalance"] for entry in report["ranks"])
    imbalance = (
        f", imbalance {numbers.format_percent(most)}"
        if len(report["ranks"]) > 1
        else ""
    )
    return (
        numbers.format_us(summary["comm_us"]),
        f"{exposed} of the time exposed, {ranks:,} ranks{imbalance}",
    )


def format_ranks(ranks: Sequence[int]) -> str:
    """Write ranks: a few one by one, many as `0-7`, or as `0-6 by 2`."""
    if len(ranks) <= _FEW:
        return ", ".join(map(str, ranks))
    steps = {after - before for before, after in pairwise(ranks)}
    if len(steps) > 1:
        return f"{ranks[0]} and {len(ranks) - 1:,} like it"
    (step,) = steps
    return f"{ranks[0]}-{ranks[-1]}{'' if step == 1 else f' by {step}'}"
