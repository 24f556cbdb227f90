"""Measured traces: read, and turned into launch graphs that can run again."""

from __future__ import annotations

from perfc.traces.collective_facts import KnownCollectives, known_collectives
from perfc.traces.collectives import (
    Joint,
    align_collectives,
    read_ranks,
    record_ranks,
)
from perfc.traces.events import (
    LOADER,
    CollectiveFacts,
    DeviceKind,
    DeviceWork,
    HostOp,
    RuntimeCall,
    Shape,
    Step,
    SyncRecord,
    TooManyEventsError,
    Trace,
    TraceError,
)
from perfc.traces.execution_trace import (
    ExecutedOp,
    ExecutionTrace,
    describe,
    is_execution_trace,
    read_execution_trace,
)
from perfc.traces.inputs import (
    UNRECORDED,
    RawInputs,
    RecordedArgument,
    RecordedOp,
    RecordedTensor,
)
from perfc.traces.json_stream import no_times
from perfc.traces.kineto import read_trace
from perfc.traces.owners import call_owners, op_parents
from perfc.traces.recorded import Gap, Recorded, StepMark
from perfc.traces.recording import record
from perfc.traces.runtime import is_memory, waits_for
from perfc.traces.spans import covered
from perfc.traces.stated_kernels import SIGNATURE, signature_text
from perfc.traces.step_window import MarkedStep, Window, marked_steps, window_of

__all__ = [
    "LOADER",
    "SIGNATURE",
    "UNRECORDED",
    "CollectiveFacts",
    "DeviceKind",
    "DeviceWork",
    "ExecutedOp",
    "ExecutionTrace",
    "Gap",
    "HostOp",
    "Joint",
    "KnownCollectives",
    "MarkedStep",
    "RawInputs",
    "Recorded",
    "RecordedArgument",
    "RecordedOp",
    "RecordedTensor",
    "RuntimeCall",
    "Shape",
    "Step",
    "StepMark",
    "SyncRecord",
    "TooManyEventsError",
    "Trace",
    "TraceError",
    "Window",
    "align_collectives",
    "call_owners",
    "covered",
    "describe",
    "is_execution_trace",
    "is_memory",
    "known_collectives",
    "marked_steps",
    "no_times",
    "op_parents",
    "read_execution_trace",
    "read_ranks",
    "read_trace",
    "record",
    "record_ranks",
    "signature_text",
    "waits_for",
    "window_of",
]
