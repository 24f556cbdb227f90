"""What the operands of a case take."""

from __future__ import annotations

from perfc.ir import Work
from perfc.measure.case import Case
from perfc.measurements import Measurement, kernel_of


def work_of(case: Case) -> Work:
    """Return the compulsory work of a case."""
    row = Measurement(
        target="",
        op=case.op,
        dtype=case.dtype,
        params=case.params,
        latency_us=0.0,
        timing="event",
        source="",
    )
    return kernel_of(row).work


def least_bytes(case: Case) -> int:
    """Return the bytes of operands and results that are all read or written once."""
    return int(work_of(case).bytes)
