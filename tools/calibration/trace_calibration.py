"""`perfc calibrate --from TRACE`: a host from traces, and how far it is right."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from perfc.costmodels import HostProfile, load_profile
from perfc.fitting.profile_file import ProfileHead, profile_text
from perfc.fitting.trace_host import BETWEEN_GAPS, HostTime, Stall, fit_trace_host
from perfc.ir import PerfcError
from perfc.ir.support import Level
from perfc.tools.replay import check_steps, profile_seconds, replay_alone
from perfc.tools.reports import format_change
from perfc.traces import Recorded

_BASE = "shared"


def calibrate_traces(
    recorded: Sequence[Recorded], steps: range | None, name: str
) -> tuple[str, list[str]]:
    """Return the text of a profile, and lines that say what it is worth.

    Args:
        recorded: Traces of one host.
        steps: Numbers of the steps to learn from; all if None.
        name: What to call the profile.

    """
    check_steps(recorded, steps)
    base = load_profile(_BASE)
    found = fit_trace_host(recorded, base, steps)
    if not found.times:
        files = ", ".join(one.trace.file for one in recorded)
        msg = f"{files}: no launch and no wait of a host; nothing to learn from"
        raise PerfcError(msg)
    _check_devices(recorded)
    devices = sorted({one.trace.device for one in recorded} - {""})
    head = ProfileHead(
        name=name,
        source=f"{len(recorded)} Kineto traces, {len(found.times)} host times, of a "
        f"host with {', '.join(devices) or 'an unknown device'}",
        date=datetime.now(UTC).date().isoformat(),
        software="as profiled: the profiler's own time is in it",
    )
    stalls: dict[Stall, float] = defaultdict(float)
    for time in found.times:
        if time.stall is not None:
            stalls[time.stall] += time.us
    lines = [f"{len(found.times)} host times of {len(recorded)} traces"]
    lines += _speed(found.times, base)
    lines += [
        f"left out: {stall.value}, {us / 1e3:,.2f} ms" for stall, us in stalls.items()
    ]
    lines += _errors(recorded, base, found.profile, steps)
    lines += _warnings(recorded)
    return profile_text(head, host=found.profile), lines


def _check_devices(recorded: Sequence[Recorded]) -> None:
    for one in recorded:
        if not one.works:
            msg = (
                f"{one.trace.file}: no device work in it, so that nothing tells what "
                "of an op is overhead: profile with ProfilerActivity.CUDA"
            )
            raise PerfcError(msg)


def _warnings(recorded: Sequence[Recorded]) -> list[str]:
    found = [d for one in recorded for d in one.diagnostics]
    warnings = dict.fromkeys(d for d in found if d.level is Level.WARNING)
    return [warning.line for warning in warnings]


def _speed(times: Sequence[HostTime], base: HostProfile) -> Iterator[str]:
    """Say how fast the host is beside the base, for others like it."""
    apart = {gap.value for gap in BETWEEN_GAPS}
    usual = [time for time in times if time.stall is None and time.kind not in apart]
    took_us = math.fsum(time.us for time in usual)
    if took_us:
        speed = math.fsum(profile_seconds(time, base) for time in usual) * 1e6 / took_us
        yield f"speed beside {_BASE}: {speed:.2f} (--set host.speed={speed:.2f})"


def _errors(
    recorded: Sequence[Recorded],
    base: HostProfile,
    fitted: HostProfile,
    steps: range | None,
) -> Iterator[str]:
    """Say how far each trace is off, before and after, on steps learnt from or not."""
    for one in recorded:
        others = [
            s.number for s in one.steps if steps is not None and s.number not in steps
        ]
        chosen = (("steps learnt from", steps), ("other steps", others or None))
        for what, numbers in chosen:
            if numbers is None and (steps is not None or what == "other steps"):
                continue
            before, after = (
                replay_alone([one], host, numbers)[0].error for host in (base, fitted)
            )
            where = what if numbers is not None else "learnt from"
            was, now = format_change(before), format_change(after)
            yield f"{one.trace.file}, {where}: {_BASE} {was}, now {now}"
