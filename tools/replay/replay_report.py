"""The two forms of what `perfc replay` says."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from perfc.fitting.trace_host import HostTime
from perfc.ir import Diagnostic
from perfc.tools.replay.kernel_prices import TracePrices
from perfc.tools.replay.replay import Replayed
from perfc.tools.replay.replay_places import places_json, places_lines
from perfc.tools.replay.trace_prices_report import kernel_lines, kernels_json
from perfc.tools.reports import columns_text, format_change

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
_ROWS = 8


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
        "diagnostics": [d.to_dict() for d in remarks(replayed, predicted)],
    }
    return json.dumps(document, indent=2) + "\n"


def _trace(one: Replayed) -> dict[str, Any]:
    trace = one.recorded.trace
    return {
        "file": trace.file,
        "rank": trace.rank,
        "device": trace.device,
        "steps": [
            {
                "name": step.name,
                "measured_us": step.measured_us,
                "simulated_us": step.simulated_us,
                "error": step.error,
            }
            for step in one.steps
        ],
        "measured_us": one.measured_us,
        "simulated_us": one.simulated_us,
        "error": one.error,
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


def remarks(
    replayed: Sequence[Replayed], predicted: Sequence[TracePrices] = ()
) -> list[Diagnostic]:
    """Return remarks on traces, and on prices of their kernels."""
    found = [remark for one in replayed for remark in one.recorded.diagnostics]
    return [*found, *(remark for prices in predicted for remark in prices.diagnostics)]


def replay_text(
    replayed: Sequence[Replayed],
    times: Sequence[HostTime],
    predicted: Sequence[TracePrices] = (),
) -> str:
    """Return tables: traces and steps, kernels, places, idle time, overheads, remarks.

    Args:
        replayed: Traces, run again.
        times: What their hosts did.
        predicted: What perfc predicts for their kernels, where it was used.

    """
    blocks = [
        columns_text(trace_lines(replayed)),
        *(columns_text(kernel_lines(prices)) for prices in predicted),
        columns_text(places_lines(replayed)),
        _idle_text(replayed),
        columns_text(overhead_lines(times)),
    ]
    if len(longest := longest_lines(times)) > 1:
        blocks.append(columns_text(longest))
    notes = [found.line for found in remarks(replayed, predicted)]
    return "\n\n".join(filter(None, [*blocks, "\n".join(notes)])) + "\n"


def trace_lines(replayed: Sequence[Replayed]) -> list[tuple[str, ...]]:
    """Return a heading, and a row for each trace and each of its steps."""
    header = ("trace", "step", "measured", "simulated", "error", "GPU busy", "comm")
    rows: list[tuple[str, ...]] = [header]
    for one in replayed:
        name = one.recorded.trace.file
        active = (
            f"{100 * one.gpu_active_us / one.simulated_us:.1f} %"
            if one.simulated_us
            else "-"
        )
        rows.append(
            (
                name,
                "all",
                *_times(one.measured_us, one.simulated_us, one.error),
                active,
                f"{one.exposed_comm_us / 1e3:,.2f} ms",
            )
        )
        rows += [
            (
                "",
                step.name,
                *_times(step.measured_us, step.simulated_us, step.error),
                "",
                "",
            )
            for step in one.steps
        ]
    return rows


def _times(measured_us: float, simulated_us: float, error: float) -> tuple[str, ...]:
    return (
        f"{measured_us / 1e3:,.2f} ms",
        f"{simulated_us / 1e3:,.2f} ms",
        format_change(error, 2),
    )


def _idle_text(replayed: Sequence[Replayed]) -> str:
    totals: dict[str, float] = defaultdict(float)
    for one in replayed:
        for reason, us in one.idle_us.items():
            totals[reason.value.replace("_", " ")] += us
    rows = [
        (f"idle: {reason}", f"{us / 1e3:,.2f} ms")
        for reason, us in totals.items()
        if us
    ]
    return columns_text(rows)


def overhead_lines(times: Sequence[HostTime]) -> list[tuple[str, ...]]:
    """Return a heading, and a row for each kind of host time and of stall."""
    found = _overheads(times)
    rows: list[tuple[str, ...]] = [("overhead", "n", "mean", "spread", "")]
    for kind in _KINDS:
        row = found[kind]
        if row["n"]:
            mean, spread = f"{row['mean_us']:.1f} us", f"{row['std_us']:.1f} us"
            rows.append((kind, f"{row['n']:,}", mean, spread, _MEANING[kind]))
    for cause, row in found["stalls"].items():
        total = f"{row['total_us'] / 1e3:,.2f} ms in all"
        rows.append(("stall", f"{row['n']:,}", "", "", f"{cause}: {total}"))
    return rows


def longest_lines(times: Sequence[HostTime]) -> list[tuple[str, ...]]:
    """Return a heading, and the ops whose overheads take longest, all together."""
    ops: dict[str, list[HostTime]] = defaultdict(list)
    for time in times:
        if time.stall is None and _BY_NAME.get(time.kind) == "per_op":
            ops[time.name].append(time)
    totals = sorted(ops, key=lambda name: -math.fsum(t.us for t in ops[name]))
    rows: list[tuple[str, ...]] = [("op", "in all", "T2", "T3", "T5", "T0")]
    for name in totals[:_ROWS]:
        own = {
            kind: [t.us for t in ops[name] if t.kind == kind]
            for kind in ("T2", "T3", "T5", "T0")
        }
        means = [f"{statistics.fmean(us):.1f} us" if us else "-" for us in own.values()]
        total = math.fsum(t.us for t in ops[name])
        rows.append((name, f"{total / 1e3:,.2f} ms", *means))
    return rows
