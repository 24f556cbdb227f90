"""Running ops and models for real, on a GPU or on the CPU.

Importing this package imports PyTorch.
"""

from __future__ import annotations

from perfc.measure.device import Device, open_device
from perfc.measure.for_fit import measure_for_fit
from perfc.measure.kernel_run import KernelRun, check_source
from perfc.measure.suite import SUITES, suite
from perfc.measure.timing import percentiles

__all__ = [
    "SUITES",
    "Device",
    "KernelRun",
    "check_source",
    "measure_for_fit",
    "open_device",
    "percentiles",
    "suite",
]
