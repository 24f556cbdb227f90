"""Measured rows: what a machine really took, in perfc's own formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.measurements.columns import MeasuredColumns, read_columns
    from perfc.measurements.index_trace import (
        TableTrace,
        read_index_trace,
    )
    from perfc.measurements.nccl_log import NcclLogError, is_nccl_log, read_nccl_log
    from perfc.measurements.row import TIMINGS, Measurement, WorkloadMeasurement
    from perfc.measurements.schema import (
        MEASUREMENTS,
        WORKLOADS,
        Column,
        MeasurementError,
        Schema,
    )
    from perfc.measurements.session_trace import read_session_trace
    from perfc.measurements.signature import (
        BYTES,
        KERNEL_OPS,
        bytes_of,
        kernel_of,
        kernel_tables,
    )
    from perfc.measurements.split import FIT, TEST, fold_of, shape_of, split_of
    from perfc.measurements.table import (
        read_rows,
        read_usable_rows,
        write_rows,
    )
    from perfc.measurements.writer import RowWriter
else:
    __getattr__ = door(
        __name__,
        {
            "columns": ("MeasuredColumns", "read_columns"),
            "index_trace": ("TableTrace", "read_index_trace"),
            "nccl_log": ("NcclLogError", "is_nccl_log", "read_nccl_log"),
            "row": ("Measurement", "TIMINGS", "WorkloadMeasurement"),
            "schema": (
                "Column",
                "MEASUREMENTS",
                "MeasurementError",
                "Schema",
                "WORKLOADS",
            ),
            "session_trace": ("read_session_trace",),
            "signature": (
                "BYTES",
                "KERNEL_OPS",
                "bytes_of",
                "kernel_of",
                "kernel_tables",
            ),
            "split": ("FIT", "TEST", "fold_of", "shape_of", "split_of"),
            "table": (
                "read_rows",
                "read_usable_rows",
                "write_rows",
            ),
            "writer": ("RowWriter",),
        },
    )

__all__ = [
    "BYTES",
    "FIT",
    "KERNEL_OPS",
    "MEASUREMENTS",
    "TEST",
    "TIMINGS",
    "WORKLOADS",
    "Column",
    "MeasuredColumns",
    "Measurement",
    "MeasurementError",
    "NcclLogError",
    "RowWriter",
    "Schema",
    "TableTrace",
    "WorkloadMeasurement",
    "bytes_of",
    "fold_of",
    "is_nccl_log",
    "kernel_of",
    "kernel_tables",
    "read_columns",
    "read_index_trace",
    "read_nccl_log",
    "read_rows",
    "read_session_trace",
    "read_usable_rows",
    "shape_of",
    "split_of",
    "write_rows",
]
