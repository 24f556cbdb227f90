"""What a profile is fitted on: tensors that no cache holds, and the quick suite.

And what the host takes: on a GPU all of it, on a CPU between ops, for there a kernel's
rows hold the rest.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from perfc.measure.design import SEED
from perfc.measure.device import open_device
from perfc.measure.host import HOST_OP, OverheadRun, dispatch_rows
from perfc.measure.kernel_run import KernelRun, Say
from perfc.measure.suites import LARGE
from perfc.measurements import MEASUREMENTS, Measurement, RowWriter

_FAR_OPS = ("elementwise", "memcpy")
"""Ops that tell of memory, and of pages that are new."""

_FAR_SHARE = 0.2
"""Share of the time that `_FAR_OPS` have for themselves."""


def measure_for_fit(
    device: str, seconds: float, path: Path | None, say: Say, seed: int = SEED
) -> list[Measurement]:
    """Return the rows that were measured on a device, within so many seconds.

    Args:
        device: `cuda` or `cpu`.
        seconds: How long.
        path: Table that keeps them; what it has is taken over.
        say: Tells how far it is.
        seed: Other shapes for each.

    """
    with tempfile.TemporaryDirectory() as folder:
        table = path or Path(folder) / "rows.csv"
        opened = open_device(device)
        far_s = seconds * _FAR_SHARE
        KernelRun(opened, LARGE, table, ops=_FAR_OPS, seed=seed).measure(far_s, say)
        KernelRun(opened, "quick", table, seed=seed).measure(seconds - far_s, say)
        if opened.is_cuda:
            host = OverheadRun(opened, table)
            host.measure(say)
            return host.rows
        # Add what the host takes to the table, unless it has that; return all rows.
        writer = RowWriter(table, MEASUREMENTS)
        if all(row.op != HOST_OP for row in writer.rows):
            writer.append(dispatch_rows(opened))
            writer.flush()
        return writer.rows
