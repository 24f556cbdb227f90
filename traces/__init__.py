"""Measured traces: read, and turned into launch graphs that can run again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.traces.execution_trace import is_execution_trace, read_execution_trace
    from perfc.traces.inputs import RecordedArgument, RecordedOp, RecordedTensor
    from perfc.traces.recorded import Gap, Recorded
    from perfc.traces.spans import covered, joined
else:
    __getattr__ = door(
        __name__,
        {
            "execution_trace": ("is_execution_trace", "read_execution_trace"),
            "inputs": ("RecordedArgument", "RecordedOp", "RecordedTensor"),
            "recorded": ("Gap", "Recorded"),
            "spans": ("covered", "joined"),
        },
    )

__all__ = [
    "Gap",
    "Recorded",
    "RecordedArgument",
    "RecordedOp",
    "RecordedTensor",
    "covered",
    "is_execution_trace",
    "joined",
    "read_execution_trace",
]
