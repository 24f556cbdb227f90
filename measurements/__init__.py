"""Measured rows: what a machine really took, in perfc's own formats."""

from __future__ import annotations

from perfc.measurements.row import TIMINGS, Measurement, WorkloadMeasurement
from perfc.measurements.schema import (
    MEASUREMENTS,
    WORKLOADS,
    Column,
    MeasurementError,
    Schema,
)
from perfc.measurements.signature import KERNEL_OPS, bytes_of, kernel_of
from perfc.measurements.split import FIT, TEST, split_of
from perfc.measurements.table import read_rows, write_rows
from perfc.measurements.writer import RowWriter

__all__ = [
    "FIT",
    "KERNEL_OPS",
    "MEASUREMENTS",
    "TEST",
    "TIMINGS",
    "WORKLOADS",
    "Column",
    "Measurement",
    "MeasurementError",
    "RowWriter",
    "Schema",
    "WorkloadMeasurement",
    "bytes_of",
    "kernel_of",
    "read_rows",
    "split_of",
    "write_rows",
]
