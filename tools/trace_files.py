"""The traces that a verb is given: Kineto's, and execution traces beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfc.ir import PerfcError
from perfc.tools.reading import reading
from perfc.tools.steps_option import check_numbers
from perfc.traces import (
    Recorded,
    Trace,
    TraceError,
    describe,
    is_execution_trace,
    marked_steps,
    no_times,
    read_execution_trace,
    read_trace,
    record,
    record_ranks,
    window_of,
)


def read_recorded(
    files: Sequence[Path], *, joint: bool = False, steps: range | None = None
) -> list[Recorded]:
    """Return the launch graphs of traces.

    An execution trace tells the arguments of the ops of a Kineto trace: the first one
    those of the first, and so on.

    Args:
        files: Kineto traces and execution traces, in any order.
        joint: Whether they are the ranks of one run.
        steps: Steps that are asked for. Of a trace on its own only they and the steps
            next to them are kept; ranks and execution traces are matched whole.

    Raises:
        TraceError: a file is no trace, or there are no times for an execution trace.
        PerfcError: nothing was launched or waited for in one, or it has not all of the
            steps.

    """
    executions = [path for path in files if is_execution_trace(path)]
    kineto = [path for path in files if path not in executions]
    if not kineto:
        raise TraceError(no_times(executions[0]))
    if executions and len(executions) != len(kineto):
        msg = (
            f"{executions[0]}: {len(executions)} execution traces for {len(kineto)} "
            "Kineto traces; expected one for each, in the same order"
        )
        raise TraceError(msg)
    whole = joint or executions or steps is None
    traces = [_read(path, None if whole else steps) for path in kineto]
    for place, path in enumerate(executions):
        traces[place] = describe(traces[place], read_execution_trace(path))
    found = record_ranks(traces) if joint else [record(trace) for trace in traces]
    for one in found:
        if not len(one.graph):
            what = "nothing was launched or waited for"
            msg = f"{one.trace.file}: {what}; there is nothing to replay"
            raise PerfcError(msg)
    return found


def _read(path: Path, steps: range | None) -> Trace:
    """Read a trace, or what lies around some of its steps; a pipe is read once."""
    if steps is None or not path.is_file():
        with reading(path) as progress:
            return read_trace(path, progress=progress)
    with reading(path, "looking for steps in") as progress:
        marked = marked_steps(path, progress)
    check_numbers(str(path), [step.number for step in marked], steps)
    with reading(path) as progress:
        return read_trace(path, window_of(marked, steps), progress)
