"""Measured traces: read, and turned into launch graphs that can run again."""

from __future__ import annotations

from perfc.traces.collectives import Joint, align_collectives, read_ranks
from perfc.traces.events import (
    LOADER,
    DeviceKind,
    DeviceWork,
    HostOp,
    RuntimeCall,
    Step,
    SyncRecord,
    Trace,
    TraceError,
)
from perfc.traces.kineto import read_trace
from perfc.traces.recorded import Gap, Recorded, StepMark
from perfc.traces.recording import record
from perfc.traces.runtime import is_memory
from perfc.traces.spans import covered

__all__ = [
    "LOADER",
    "DeviceKind",
    "DeviceWork",
    "Gap",
    "HostOp",
    "Joint",
    "Recorded",
    "RuntimeCall",
    "Step",
    "StepMark",
    "SyncRecord",
    "Trace",
    "TraceError",
    "align_collectives",
    "covered",
    "is_memory",
    "read_ranks",
    "read_trace",
    "record",
]
