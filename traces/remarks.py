"""What the launch graph of a trace leaves open, said to the user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from perfc.ir import Diagnostic
from perfc.ir.support import Level
from perfc.traces.clock import overlaps
from perfc.traces.events import Trace
from perfc.traces.nesting import CLOCKS_US
from perfc.traces.runtime import runs_kernels

_TOLD_OVERLAP = 1e-3
"""Part of a trace's time by which work of one stream overlaps, to be told."""


def _without_work(trace: Trace) -> Counter[str]:
    """Count launches of kernels that the trace does not have, by call."""
    worked = {work.correlation for work in trace.works}
    return Counter(
        call.name
        for call in trace.calls
        if call.correlation not in worked and runs_kernels(call.name)
    )


def remarks(  # noqa: PLR0913 - one argument per finding
    trace: Trace,
    measured_us: float,
    *,
    steps: int,
    doubled: int,
    lost: int,
    unresolved: Mapping[str, int],
    refuted: Mapping[str, int],
) -> Iterator[Diagnostic]:
    """Yield the findings of reading a trace, and of taking it apart.

    Args:
        trace: The trace.
        measured_us: How long it is.
        steps: How many of its steps are left out.
        doubled: Launches of which an earlier one has the correlation.
        lost: Pieces of device work without a call.
        unresolved: Waits of streams without an effect, by reason.
        refuted: Guessed waits that the recording refutes, by what waits.

    """

    def said(level: Level, code: str, message: str) -> Diagnostic:
        return Diagnostic(level, code, message, trace.file)

    yield from trace.diagnostics
    if steps:
        message = (
            f"{steps} steps are left out: nothing was launched in them on the thread "
            "that runs the model"
        )
        yield said(Level.WARNING, "trace-steps", message)
    if doubled:
        message = (
            f"{doubled} launches have the correlation of an earlier one, which is "
            "taken to have issued the work; expected one run"
        )
        yield said(Level.WARNING, "trace-correlations", message)
    count, total_us = overlaps(trace.works)
    if total_us > _TOLD_OVERLAP * measured_us:
        message = (
            f"{count} pieces of device work begin before the one in front of them "
            f"on their stream has ended, by {total_us / 1e3:,.2f} ms in all: a stream "
            "does one thing at a time, so that they wait here"
        )
        yield said(Level.WARNING, "trace-overlap", message)
    if lost:
        message = (
            f"{lost} of {len(trace.works)} pieces of device work have no call in the "
            "trace: they run where they were measured on their streams"
        )
        yield said(Level.NOTE, "trace-unmatched", message)
    empty = _without_work(trace)
    if empty:
        names = ", ".join(f"{name} {times}" for name, times in empty.most_common())
        message = (
            f"{empty.total()} launches have no kernel in the trace, and take no time "
            f"on the device here: {names}"
        )
        yield said(Level.WARNING, "trace-launches", message)
    for what, times in sorted(unresolved.items()):
        message = f"{times} waits of streams without an effect: {what}"
        yield said(Level.NOTE, "trace-waits", message)
    for who, times in sorted(refuted.items()):
        if times:
            message = (
                f"{times} guesses of what {who} waited for are dropped: that ended "
                f"over {CLOCKS_US:.0f} us after the wait was over"
            )
            yield said(Level.NOTE, "trace-refuted", message)
