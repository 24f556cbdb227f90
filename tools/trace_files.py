"""The traces that a verb is given: Kineto's, and execution traces beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfc.ir import PerfcError
from perfc.traces import (
    Recorded,
    TraceError,
    describe,
    is_execution_trace,
    no_times,
    read_execution_trace,
    read_trace,
    record,
    record_ranks,
)


def read_recorded(files: Sequence[Path], *, joint: bool = False) -> list[Recorded]:
    """Return the launch graphs of traces.

    An execution trace tells the arguments of the ops of a Kineto trace: the first one
    those of the first, and so on.

    Args:
        files: Kineto traces and execution traces, in any order.
        joint: Whether they are the ranks of one run.

    Raises:
        TraceError: a file is no trace, or there are no times for an execution trace.
        PerfcError: nothing was launched or waited for in one.

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
    traces = [read_trace(path) for path in kineto]
    for place, path in enumerate(executions):
        traces[place] = describe(traces[place], read_execution_trace(path))
    found = record_ranks(traces) if joint else [record(trace) for trace in traces]
    for one in found:
        if not len(one.graph):
            what = "nothing was launched or waited for"
            msg = f"{one.trace.file}: {what}; there is nothing to replay"
            raise PerfcError(msg)
    return found
