"""The traces that a verb is given: Kineto's, and execution traces beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from perfc.ir import PerfcError
from perfc.ir.support import counted, share_of
from perfc.tools.replay.steps_option import check_numbers
from perfc.traces import Recorded, is_execution_trace, read_execution_trace
from perfc.traces.collectives import record_ranks
from perfc.traces.events import TooManyEventsError, Trace, TraceError
from perfc.traces.execution_trace import describe
from perfc.traces.json_stream import no_times
from perfc.traces.kineto import read_trace
from perfc.traces.recording import record
from perfc.traces.step_window import MarkedStep, marked_steps, window_of


def read_recorded(
    files: Sequence[Path],
    *,
    joint: bool = False,
    steps: range | None = None,
    max_events: int | None = None,
) -> list[Recorded]:
    """Return the launch graphs of traces.

    An execution trace tells the arguments of the ops of a Kineto trace: the first one
    those of the first, and so on.

    Args:
        files: Kineto traces and execution traces, in any order.
        joint: Whether they are the ranks of one run.
        steps: Steps that are asked for. Of a trace on its own only they and the steps
            next to them are kept; ranks and execution traces are matched whole.
        max_events: How many events to hold at most, of all traces; None for all.

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
    whole = joint or bool(executions)
    traces = read_traces(kineto, steps, max_events, whole=whole)
    for place, path in enumerate(executions):
        traces[place] = describe(traces[place], read_execution_trace(path))
    found = record_ranks(traces) if joint else [record(trace) for trace in traces]
    for one in found:
        if not len(one.graph):
            what = "nothing was launched or waited for"
            msg = f"{one.trace.file}: {what}; there is nothing to replay"
            raise PerfcError(msg)
    return found


def read_traces(
    paths: Sequence[Path],
    steps: range | None,
    max_events: int | None,
    *,
    whole: bool = False,
) -> list[Trace]:
    """Read Kineto traces, each on its own.

    Args:
        paths: The files.
        steps: Steps that are asked for: only they and the steps next to them are kept.
        max_events: How many events to hold at most, of all traces; None for all.
        whole: Whether everything is kept, whatever the steps.

    """
    found: list[Trace] = []
    left = max_events
    for path in counted(paths, "traces read"):
        try:
            found.append(_read(path, None if whole else steps, left))
        except TooManyEventsError:
            others = ", with the traces before it" if found else ""
            advice = "" if whole else _fewer(path, steps)
            msg = (
                f"{path}: more than {max_events:,} events to hold{others}; {advice}let "
                "more in with --max-events"
            )
            raise TooManyEventsError(msg) from None
        left = None if left is None else left - found[-1].event_count
    return found


def _read(path: Path, steps: range | None, most_events: int | None) -> Trace:
    """Read a trace, or what lies around some steps that it marks; a pipe, once."""
    if steps is None or not path.is_file():
        return read_trace(path, None, _reading(path), most_events)
    marked = _marked(path)
    if not marked:
        return _read(path, None, most_events)  # what else may tell steps is all of it
    check_numbers(str(path), [step.number for step in marked], steps)
    window = window_of(marked, steps)
    return read_trace(path, window, _reading(path), most_events)


def _marked(path: Path) -> list[MarkedStep]:
    return marked_steps(path, _reading(path, "looking for steps in"))


def _reading(path: Path, what: str = "reading") -> Callable[[float], None] | None:
    """Return a function to tell which part has been read; None where nobody looks."""
    return share_of(f"{what} {path.name}")


def _fewer(path: Path, steps: range | None) -> str:
    """Say which part of a trace to ask for, if there is one."""
    if steps is not None:
        return "ask for fewer --steps, or "
    marked = _marked(path) if path.is_file() else []
    if not marked:
        return ""
    middle = marked[len(marked) // 2].number
    between = f"steps {marked[0].number} to {marked[-1].number}"
    return f"it has {between}: ask for some of them, as --steps {middle}, or "
