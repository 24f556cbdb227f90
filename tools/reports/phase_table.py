"""Tables of a training step for people: its phases, and its memory at the peak."""

from __future__ import annotations

from perfc.ir.support import Json
from perfc.tools.reports.numbers import format_bytes, format_share, format_us

_SEVERAL = 2
_NO_PHASE = "none of these"
_KINDS = {
    "parameters": "parameters",
    "optimizer_state": "state of the optimizer",
    "gradients": "gradients of parameters",
    "saved_for_backward": "activations saved for backward",
    "inputs": "inputs",
    "other_results": "intermediate results",
    "workspaces": "workspaces",
}
"""What people call the kinds of a report's `memory.by_kind`."""


def _is_step(report: Json) -> bool:
    named = [entry for entry in report["phases"] if entry["phase"]]
    return len(named) >= _SEVERAL


def phase_rows(report: Json, device: str) -> list[tuple[str, ...]]:
    """Return a heading, and a row per phase; nothing, if there is only one."""
    if not _is_step(report):
        return []
    time_us = report["summary"]["time_us"]
    rows: list[tuple[str, ...]] = [
        (
            *("phase", "time", "share", f"{device} busy"),
            *("host busy", "launches", "memory"),
        )
    ]
    for entry in report["phases"]:
        peak = entry["peak_memory_bytes"]
        rows.append(
            (
                entry["phase"] or _NO_PHASE,
                format_us(entry["time_us"]),
                format_share(entry["time_us"], time_us),
                format_us(entry["device_us"]),
                format_us(entry["host_us"]),
                f"{entry['launches']:,}",
                format_bytes(peak) if peak else "",
            )
        )
    return rows


def memory_rows(report: Json) -> list[tuple[str, int, str]]:
    """Return kind, bytes and share of what the peak is made of, largest first."""
    if not _is_step(report):
        return []
    memory = report["memory"]
    sizes = sorted(memory["by_kind"].items(), key=lambda item: -item[1])
    return [
        (_KINDS[kind], nbytes, format_share(nbytes, memory["peak_bytes"]))
        for kind, nbytes in sizes
        if nbytes
    ]


def memory_place(report: Json) -> str:
    """Return the phase and the node of the peak."""
    memory = report["memory"]
    return ", ".join(filter(None, (memory["at_phase"], memory["at_node"])))


def loading_rows(report: Json) -> list[tuple[str, ...]]:
    """Return a heading, and a row per stage of the input pipeline; or nothing."""
    found = report.get("input_pipeline")
    if found is None:
        return []
    head = ("stage", "on", "workers", "depth", "of a batch", "pace", "2x saves")
    rows: list[tuple[str, ...]] = [head]
    for stage in found["stages"]:
        times = (stage["time_us"], stage["pace_us"], stage["saved_2x_us"])
        sizes = (f"{stage['workers']:,}", f"{stage['depth']:,}")
        name, resource = stage["name"], stage["resource"]
        rows.append((name, resource, *sizes, *map(format_us, times)))
    return rows


def loading_place(report: Json) -> str:
    """Say how stages follow each other, and what they add to the step."""
    found = report.get("input_pipeline")
    if found is None:
        return ""
    exposed, alone = map(format_us, (found["exposed_us"], found["step_us"]))
    begin = f"Data loading, {found['mode']}: adds {exposed} to a step of {alone}; "
    if found["mode"] == "serial":
        saved = format_us(found["saved_by_hiding_us"])
        return f"{begin}hiding it saves {saved}, then {found['slowest']} sets the pace"
    serial = format_us(found["serial_us"])
    return f"{begin}{found['slowest']} sets the pace; serial, it would be {serial}"
