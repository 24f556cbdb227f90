"""What the device does in calls that no CUDA graph can hold, by PyTorch's profiler.

Starting the profiler takes longer than most calls: it is started once for many of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from torch.profiler import record_function

from perfc.measure.case import Call
from perfc.measure.clocks import Clock
from perfc.measure.device import Device
from perfc.measure.profiled import DEVICE_WORK, Trace, trace_of
from perfc.measure.timing import Timed

MOST_TIMES, LONGEST_SECONDS = 5, 0.01
"""How often a call is made, and how long all of that may take. It is made thrice as
often, for the profiler warms up; and an optimizer that steps tensor by tensor launches
thousands of kernels, each of which is some events to write and to read."""

_MARK = "perfc::"
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})

Work = list[tuple[str, float]]
"""Names and microseconds of kernels, copies and fills."""


def profiled_calls(
    calls: Sequence[Call], device: Device, clock: Clock, times: Sequence[int] = ()
) -> list[Timed | None]:
    """Return the times of the kernels of each call, None where it has none.

    The mean of a few calls: which kernel is of which repetition is not told.

    Args:
        calls: What is profiled.
        device: Where they run.
        clock: Of the device, for the rows.
        times: How often each is made, as `times_of` says; five times without.

    Raises:
        RuntimeError: a call fails.

    """
    counts = times or [MOST_TIMES] * len(calls)

    def once() -> None:
        for number, (call, count) in enumerate(zip(calls, counts, strict=True)):
            with record_function(f"{_MARK}{number}"):
                for _ in range(count):
                    call()
            device.synchronize()

    work = work_of(trace_of(once, device, 1, shapes=False), len(calls))
    found = zip(work, counts, strict=True)
    return [_timed(done, clock, count) if done else None for done, count in found]


def times_of(seconds: float) -> int:
    """Return how often a call is made that takes so long: a pageable copy but once."""
    return max(1, min(MOST_TIMES, int(LONGEST_SECONDS / max(seconds, 1e-9))))


def work_of(trace: Trace, calls: int) -> list[Work]:
    """Return the device's work for each mark: kernels are launched within theirs."""
    marks = sorted(
        (float(event["ts"]), float(event["dur"]), int(event["name"][len(_MARK) :]))
        for event in trace.events
        if event.get("cat") == "user_annotation"
        and str(event.get("name")).startswith(_MARK)
    )
    starts = [start for start, _, _ in marks]
    launched = {
        _correlation(event): float(event["ts"])
        for event in trace.events
        if event.get("cat") in _LAUNCHES
    }
    work: list[Work] = [[] for _ in range(calls)]
    for event in trace.events:
        if event.get("cat") not in DEVICE_WORK or event.get("ph") != "X":
            continue
        at = launched.get(_correlation(event))
        index = -1 if at is None else bisect_right(starts, at) - 1
        if at is None or index < 0:
            continue
        start, duration, number = marks[index]
        if at <= start + duration:
            work[number].append((str(event["name"]), float(event["dur"])))
    return work


def _correlation(event: Mapping[str, Any]) -> object:
    return event.get("args", {}).get("correlation")


def _timed(work: Work, clock: Clock, times: int) -> Timed:
    each = sum(us for _, us in work) / times
    names = {name for name, _ in work}
    kernel = names.pop() if len(names) == 1 else ""
    return Timed("kernel", each, None, None, times, clock, kernel=kernel)
