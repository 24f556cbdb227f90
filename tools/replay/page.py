"""What `perfc replay` says, as a page: measured beside simulated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from perfc.fitting.trace_host import HostTime
from perfc.tools import pages
from perfc.tools.replay import replay_report
from perfc.tools.replay.kernel_prices import TracePrices
from perfc.tools.replay.replay import Idle, Replayed
from perfc.tools.replay.replay_places import places_lines
from perfc.tools.replay.trace_prices_report import kernel_lines
from perfc.tools.reports import format_change, format_percent, format_us

_LARGE = 0.5
"""Discs below points."""

_NEAR = 5
"""Errors up to so many percent are called close."""


def replay_page(
    replayed: Sequence[Replayed],
    times: Sequence[HostTime],
    predicted: Sequence[TracePrices] = (),
) -> str:
    """Return the page; it loads nothing from anywhere.

    Args:
        replayed: Traces, run again.
        times: What their hosts did.
        predicted: What perfc predicts for their kernels, where it was used.

    """
    parts: list[pages.Part] = [
        _heading(replayed),
        pages.Remarks(replay_report.remarks(replayed, predicted)),
        pages.Section("Measured and simulated", [*_steps(replayed)]),
    ]
    if predicted:
        tables = [pages.quantity_table(kernel_lines(p), "Kernels") for p in predicted]
        parts.append(pages.Section("Kernels, predicted", tables))
    parts += _device(replayed)
    if places := places_lines(replayed):
        name = places[0][0]
        table = pages.quantity_table(places, f"Time of each {name}")
        parts.append(pages.Section(f"By {name}", [table]))
    parts += _host(times)
    return pages.page(f"perfc replay: {_names(replayed)}", parts)


def _names(replayed: Sequence[Replayed]) -> str:
    first, *others = replayed
    name = PurePath(first.recorded.trace.file).name
    return name + (f" and {len(others):,} more" if others else "")


def _heading(replayed: Sequence[Replayed]) -> pages.Heading:
    measured_us = math.fsum(one.measured_us for one in replayed)
    simulated_us = math.fsum(one.simulated_us for one in replayed)
    error = simulated_us / measured_us - 1 if measured_us else 0.0
    steps = sum(len(one.steps) for one in replayed)
    devices = dict.fromkeys(one.recorded.trace.device or "device" for one in replayed)
    count = len(replayed)
    exposed_us = math.fsum(one.exposed_comm_us for one in replayed)
    waits = {"exposed communication": exposed_us, **_idle_us(replayed)}
    longest = max(waits, key=waits.__getitem__)
    share = format_percent(waits[longest] / simulated_us) if simulated_us else "0 %"
    return pages.Heading(
        f"Replay of {_names(replayed)}",
        asked=(
            f"{count:,} traces" if count > 1 else "one trace",
            f"{steps:,} steps" if steps else "no step is marked",
            ", ".join(devices),
        ),
        answer=format_us(waits[longest]),
        label=f"Waited most for: {longest}",
        remark=f"{share} of {format_us(simulated_us)}",
        badges=[
            (
                f"simulated against measured: {format_change(error, 2)}",
                "good" if 100 * abs(error) <= _NEAR else "bad",
            ),
        ],
    )


def _steps(replayed: Sequence[Replayed]) -> Iterator[pages.Part]:
    """Yield a chart of the steps of all traces, and the table of traces and steps."""
    steps = [
        (f"{PurePath(one.recorded.trace.file).name} {step.name}", step.name, step)
        for one in replayed
        for step in one.steps
    ]
    if steps:
        x = [*map(float, range(len(steps)))]
        notes = [f"{name}: {format_change(step.error, 2)}" for name, _, step in steps]
        measured = [step.measured_us for *_, step in steps]
        simulated = [step.simulated_us for *_, step in steps]
        yield pages.Chart(
            pages.Axis(
                "step", words=[n.removeprefix("ProfilerStep#") for _, n, _ in steps]
            ),
            pages.Axis("time of a step", "us"),
            [
                pages.Series(
                    "measured", x, measured, sizes=[_LARGE] * len(x), color=-1
                ),
                pages.Series("simulated", x, simulated, notes=notes),
            ],
            "Discs are what was measured of each step, points what is simulated.",
        )
    yield pages.quantity_table([*_named(replayed)], "Traces and steps", search=True)


def _named(replayed: Sequence[Replayed]) -> Iterator[tuple[str, ...]]:
    name = ""
    for first, *others in replay_report.trace_lines(replayed):
        name = PurePath(first).name or name
        yield (name, *others)


def _device(replayed: Sequence[Replayed]) -> Iterator[pages.Part]:
    """Yield a part of the simulated time a bar: work, exposed collectives, idle."""
    whole_us = math.fsum(one.simulated_us for one in replayed)
    parts_us = {
        "working": math.fsum(one.gpu_active_us for one in replayed),
        "of it exposed communication": math.fsum(
            one.exposed_comm_us for one in replayed
        ),
    }
    for reason, us in _idle_us(replayed).items():
        parts_us[f"idle: {reason}"] = us
    kinds = {"working": "kernel", "of it exposed communication": "comm"}
    bars = [
        pages.Bar(
            name,
            us,
            format_us(us),
            format_percent(us / whole_us) if whole_us else "",
            kinds.get(name, "idle"),
        )
        for name, us in parts_us.items()
        if us
    ]
    if bars:
        yield pages.Section(
            "What the devices do", [pages.Bars(bars, "What the devices do")]
        )


def _idle_us(replayed: Sequence[Replayed]) -> dict[str, float]:
    return {
        reason.value.replace("_", " "): math.fsum(
            one.idle_us.get(reason, 0.0) for one in replayed
        )
        for reason in Idle
    }


def _host(times: Sequence[HostTime]) -> Iterator[pages.Part]:
    tables: list[pages.Part] = [
        pages.quantity_table(replay_report.overhead_lines(times), "Overheads")
    ]
    longest = replay_report.longest_lines(times)
    if len(longest) > 1:
        tables.append(pages.quantity_table(longest, "Ops whose overheads take longest"))
    yield pages.Section("What the hosts do", tables)
