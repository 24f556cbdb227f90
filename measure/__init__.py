"""Running ops and models for real, on a GPU or on the CPU.

Importing this package imports PyTorch.
"""

from __future__ import annotations

from perfc.measure.call_profile import profiled_calls, times_of
from perfc.measure.capture import captured
from perfc.measure.case import DTYPES_OF_TENSORS, Call, Case, Family, Tensors
from perfc.measure.clocks import Clock, ClockReader
from perfc.measure.design import SEED, Choice, Size, Space, points
from perfc.measure.device import Device, open_device, target_of
from perfc.measure.embedding_bag import row_indices
from perfc.measure.fatal import DeviceFailedError, Fatal
from perfc.measure.for_fit import measure_for_fit
from perfc.measure.given import triangle_side
from perfc.measure.host_floors import host_us_of_an_op
from perfc.measure.iteration import Iteration
from perfc.measure.kernel_run import KernelRun, check_source
from perfc.measure.overheads import SMALL_MODELS, OverheadRun
from perfc.measure.profiled import Trace
from perfc.measure.rounds import Prepared
from perfc.measure.setting import ATTENTION, DTYPES, OWN, RUNTIMES, Setting
from perfc.measure.subject import Subject, find_subject
from perfc.measure.suite import SUITES, runs, suite
from perfc.measure.timing import Timer, percentiles
from perfc.measure.workload import Keep, WorkloadRun
from perfc.measure.workload_table import WORKLOAD_TABLE, workload_table

__all__ = [
    "ATTENTION",
    "DTYPES",
    "DTYPES_OF_TENSORS",
    "OWN",
    "RUNTIMES",
    "SEED",
    "SMALL_MODELS",
    "SUITES",
    "WORKLOAD_TABLE",
    "Call",
    "Case",
    "Choice",
    "Clock",
    "ClockReader",
    "Device",
    "DeviceFailedError",
    "Family",
    "Fatal",
    "Iteration",
    "Keep",
    "KernelRun",
    "OverheadRun",
    "Prepared",
    "Setting",
    "Size",
    "Space",
    "Subject",
    "Tensors",
    "Timer",
    "Trace",
    "WorkloadRun",
    "captured",
    "check_source",
    "find_subject",
    "host_us_of_an_op",
    "measure_for_fit",
    "open_device",
    "percentiles",
    "points",
    "profiled_calls",
    "row_indices",
    "runs",
    "suite",
    "target_of",
    "times_of",
    "triangle_side",
    "workload_table",
]
