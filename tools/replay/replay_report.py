"""The answer of `perfc replay`: its parts, and `perfc.replay/1`."""

from __future__ import annotations

import functools
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from perfc.fitting.trace_host import HostTime
from perfc.ir import Diagnostic
from perfc.tools import pages, reports
from perfc.tools.replay.kernel_prices import TracePrices
from perfc.tools.replay.replay import Replayed
from perfc.tools.replay.replay_places import places_json, places_lines
from perfc.tools.replay.step_times import StepTimes
from perfc.tools.replay.trace_prices_report import kernel_lines, kernels_json

SCHEMA = "perfc.replay/1"

_KINDS = (
    *("T1", "T2", "T3", "T4", "T5", "T0", "sync"),
    *("phase", "hand-over", "hand-back", "end", "begin"),
)
_BY_NAME: Mapping[str, str] = {
    **dict.fromkeys(("T2", "T3", "T5", "T0"), "per_op"),
    **dict.fromkeys(("T4", "sync"), "per_call"),
}
_MEANING = {
    "T1": "between ops",
    "T2": "op start to first launch",
    "T3": "last launch to op end",
    "T4": "in launch calls",
    "T5": "between launches",
    "T0": "ops that launch nothing",
    "sync": "of a wait, the device being done",
    "phase": "between ops, a label between",
    "hand-over": "to autograd's thread",
    "hand-back": "from autograd's thread",
    "end": "from the last op of an iteration to its end",
    "begin": "from its beginning to its first op",
}
_TIMES = ("measured_us", "simulated_us", "error")
_ROWS = 8
_LARGE = 0.5
"""Discs below points."""

_NEAR = 5
"""Errors up to so many percent are called close."""


def replay_json(
    replayed: Sequence[Replayed],
    times: Sequence[HostTime],
    predicted: Sequence[TracePrices] = (),
) -> str:
    """Return `perfc.replay/1`.

    Args:
        replayed: Traces, run again.
        times: What their hosts did.
        predicted: What perfc predicts for their kernels, where it was used.

    """
    traces = [_trace(one) for one in replayed]
    for trace, prices in zip(traces, predicted, strict=False):
        trace["kernels"] = kernels_json(prices)
    document = {
        "schema": SCHEMA,
        "traces": traces,
        "overheads": _overheads(times),
        "diagnostics": [d.to_dict() for d in _remarks(replayed, predicted)],
    }
    return json.dumps(document, indent=2) + "\n"


def _trace(one: Replayed) -> dict[str, Any]:
    trace = one.recorded.trace
    return {
        "file": trace.file,
        "rank": trace.rank,
        "device": trace.device,
        "steps": [
            {key: getattr(step, key) for key in ("name", *_TIMES)} for step in one.steps
        ],
        **{key: getattr(one, key) for key in _TIMES},
        "gpu_active_us": one.gpu_active_us,
        "exposed_comm_us": one.exposed_comm_us,
        "idle_us": {reason.value: us for reason, us in one.idle_us.items()},
        "kernels": None,
        **places_json(one),
    }


def _overheads(times: Sequence[HostTime]) -> dict[str, Any]:
    kinds: dict[str, list[HostTime]] = defaultdict(list)
    stalls: dict[str, list[HostTime]] = defaultdict(list)
    for time in times:
        if time.stall is None:
            kinds[time.kind].append(time)
        else:
            stalls[time.stall.value].append(time)
    found: dict[str, Any] = {}
    for kind in _KINDS:
        found[kind] = _statistics(kinds[kind])
        if kind in _BY_NAME:
            found[kind][_BY_NAME[kind]] = _by_name(kinds[kind])
    found["stalls"] = {
        cause: {"n": len(own), "total_us": math.fsum(t.us for t in own)}
        for cause, own in sorted(stalls.items())
    }
    return found


def _by_name(times: Sequence[HostTime]) -> dict[str, Any]:
    names: dict[str, list[HostTime]] = defaultdict(list)
    for time in times:
        names[time.name].append(time)
    return {name: _statistics(own) for name, own in sorted(names.items())}


def _statistics(times: Sequence[HostTime]) -> dict[str, Any]:
    """Return number, mean and standard deviation, null where there is none."""
    values = [time.us for time in times]
    return {
        "n": len(values),
        "mean_us": statistics.fmean(values) if values else None,
        "std_us": statistics.pstdev(values) if values else None,
    }


def _remarks(
    replayed: Sequence[Replayed], predicted: Sequence[TracePrices] = ()
) -> list[Diagnostic]:
    """Return remarks on traces, and on prices of their kernels."""
    found = [remark for one in replayed for remark in one.recorded.diagnostics]
    return [*found, *(remark for prices in predicted for remark in prices.diagnostics)]


def replay_parts(
    replayed: Sequence[Replayed],
    times: Sequence[HostTime],
    predicted: Sequence[TracePrices] = (),
) -> list[pages.Part]:
    """Return traces and steps, kernels, places, idle time, overheads and remarks.

    Args:
        replayed: Traces, run again.
        times: What their hosts did.
        predicted: What perfc predicts for their kernels, where it was used.

    """
    idle = [
        (f"idle: {reason}", f"{us / 1e3:,.2f} ms")
        for reason, us in _idle_us(replayed).items()
        if us
    ]
    steps = [pages.table(_rows(replayed), "Traces and steps")]
    tables = [pages.quantity_table(kernel_lines(one), "Kernels") for one in predicted]
    places, longest = places_lines(replayed), [*_longest(times)]
    if places:
        tables.append(pages.quantity_table(places, f"Time of each {places[0][0]}"))
    parts = [
        pages.Drawn(lambda: [_heading(replayed)]),
        pages.Drawn(functools.partial(_steps, replayed), steps),
        *tables,
        pages.Drawn(lambda: [_device(replayed)], [pages.Table((), idle)]),
        pages.table(_overhead_rows(times), "Overheads"),
    ]
    if longest:
        parts.append(pages.table(longest, "Ops whose overheads take longest"))
    return [*parts, pages.Remarks(_remarks(replayed, predicted), form="{0.line}")]


def _rows(
    replayed: Sequence[Replayed], *, named: bool = False
) -> Iterator[dict[str, str]]:
    """Yield a row for each trace and each of its steps, all *named* or the first."""
    for one in replayed:
        file, whole_us = one.recorded.trace.file, one.simulated_us
        name = PurePath(file).name if named else file
        active = f"{100 * one.gpu_active_us / whole_us:.1f} %" if whole_us else "-"
        comm = f"{one.exposed_comm_us / 1e3:,.2f} ms"
        yield _row((name, "all"), one, (active, comm))
        for step in one.steps:
            yield _row((name if named else "", step.name), step, ("", ""))


def _row(
    names: tuple[str, str], times: Replayed | StepTimes, device: tuple[str, str]
) -> dict[str, str]:
    return {
        "trace": names[0],
        "step": names[1],
        "measured": f"{times.measured_us / 1e3:,.2f} ms",
        "simulated": f"{times.simulated_us / 1e3:,.2f} ms",
        "error": reports.format_change(times.error, 2),
        "GPU busy": device[0],
        "comm": device[1],
    }


def _idle_us(replayed: Sequence[Replayed]) -> dict[str, float]:
    found: dict[str, list[float]] = defaultdict(list)
    for one in replayed:
        for reason, us in one.idle_us.items():
            found[reason.value.replace("_", " ")].append(us)
    return {reason: math.fsum(us) for reason, us in found.items()}


def _overhead_rows(times: Sequence[HostTime]) -> Iterator[dict[str, str]]:
    """Yield a row for each kind of host time and of stall."""
    found = _overheads(times)
    keys = ["overhead", "n", "mean", "spread", ""]
    rows: list[tuple[str, ...]] = [
        (
            *(kind, f"{row['n']:,}", f"{row['mean_us']:.1f} us"),
            *(f"{row['std_us']:.1f} us", _MEANING[kind]),
        )
        for kind in _KINDS
        if (row := found[kind])["n"]
    ]
    for cause, row in found["stalls"].items():
        total = f"{cause}: {row['total_us'] / 1e3:,.2f} ms in all"
        rows.append(("stall", f"{row['n']:,}", "", "", total))
    yield from (dict(zip(keys, row, strict=True)) for row in rows)


def _longest(times: Sequence[HostTime]) -> Iterator[dict[str, str]]:
    """Yield the ops whose overheads take longest, all together."""
    ops: dict[str, list[HostTime]] = defaultdict(list)
    for time in times:
        if time.stall is None and _BY_NAME.get(time.kind) == "per_op":
            ops[time.name].append(time)
    totals = {name: math.fsum(time.us for time in own) for name, own in ops.items()}
    for name in sorted(totals, key=lambda name: -totals[name])[:_ROWS]:
        row = {"op": name, "in all": f"{totals[name] / 1e3:,.2f} ms"}
        for kind in ("T2", "T3", "T5", "T0"):
            us = [time.us for time in ops[name] if time.kind == kind]
            row[kind] = f"{statistics.fmean(us):.1f} us" if us else "-"
        yield row


def replay_title(replayed: Sequence[Replayed]) -> str:
    """Return the name of the first trace, and how many others there are."""
    first, *others = replayed
    name = PurePath(first.recorded.trace.file).name
    return name + (f" and {len(others):,} more" if others else "")


def _heading(replayed: Sequence[Replayed]) -> pages.Heading:
    measured_us = math.fsum(one.measured_us for one in replayed)
    simulated_us = math.fsum(one.simulated_us for one in replayed)
    error = simulated_us / measured_us - 1 if measured_us else 0.0
    steps = sum(len(one.steps) for one in replayed)
    devices = dict.fromkeys(one.recorded.trace.device or "device" for one in replayed)
    exposed_us = math.fsum(one.exposed_comm_us for one in replayed)
    waits = {"exposed communication": exposed_us, **_idle_us(replayed)}
    longest = max(waits, key=waits.__getitem__)
    share = reports.format_share(waits[longest], simulated_us)
    text = f"simulated against measured: {reports.format_change(error, 2)}"
    return pages.Heading(
        f"Replay of {replay_title(replayed)}",
        (
            f"{len(replayed):,} traces" if len(replayed) > 1 else "one trace",
            f"{steps:,} steps" if steps else "no step is marked",
            ", ".join(devices),
        ),
        reports.format_us(waits[longest]),
        f"Waited most for: {longest}",
        f"{share} of {reports.format_us(simulated_us)}",
        [(text, "good" if 100 * abs(error) <= _NEAR else "bad")],
    )


def _steps(replayed: Sequence[Replayed]) -> Iterator[pages.Part]:
    """Yield a chart of the steps of all traces, and the table of traces and steps."""
    steps = [(one.recorded.trace.file, step) for one in replayed for step in one.steps]
    if steps:
        x = [*map(float, range(len(steps)))]
        notes = [
            f"{PurePath(file).name} {step.name}: {reports.format_change(step.error, 2)}"
            for file, step in steps
        ]
        measured = [step.measured_us for _, step in steps]
        simulated = [step.simulated_us for _, step in steps]
        words = [step.name.removeprefix("ProfilerStep#") for _, step in steps]
        series = [
            pages.Series("measured", x, measured, sizes=[_LARGE] * len(x), color=-1),
            pages.Series("simulated", x, simulated, notes=notes),
        ]
        axes = pages.Axis("step", words=words), pages.Axis("time of a step", "us")
        text = "Discs are what was measured of each step, points what is simulated."
        yield pages.Chart(*axes, series, text)
    yield pages.table(_rows(replayed, named=True), "Traces and steps", search=True)


def _device(replayed: Sequence[Replayed]) -> pages.Bars:
    """Return a part of the simulated time a bar: work, exposed collectives, idle."""
    whole_us = math.fsum(one.simulated_us for one in replayed)
    active_us = math.fsum(one.gpu_active_us for one in replayed)
    exposed_us = math.fsum(one.exposed_comm_us for one in replayed)
    parts = [
        ("working", active_us, "kernel"),
        ("of it exposed communication", exposed_us, "comm"),
        *((f"idle: {reason}", us, "idle") for reason, us in _idle_us(replayed).items()),
    ]
    bars = [
        pages.Bar(
            name, us, reports.format_us(us), reports.format_share(us, whole_us), kind
        )
        for name, us, kind in parts
        if us
    ]
    return pages.Bars(bars, "What the devices do")
