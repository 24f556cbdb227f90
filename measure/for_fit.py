"""What a profile is fitted on: the quick suite, and tensors that no cache holds.

On a CPU also what the host takes between ops.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from perfc.measure.device import open_device
from perfc.measure.dispatch import dispatch_rows
from perfc.measure.kernel_run import KernelRun, Say
from perfc.measurements import Measurement

_FAR_OPS = ("elementwise", "optimizer_step", "memcpy")
"""Of the full suite, whose tensors are larger than caches."""

_FAR_SHARE = 0.2
"""Of the time."""


def measure_for_fit(
    device: str, seconds: float, path: Path | None, say: Say
) -> list[Measurement]:
    """Return the rows that were measured on a device, within so many seconds.

    Args:
        device: `cuda` or `cpu`.
        seconds: How long.
        path: Table that keeps them; what it has is taken over.
        say: Tells how far it is.

    Raises:
        PerfcError: there is no such device, or nothing could be measured.

    """
    with tempfile.TemporaryDirectory() as folder:
        table = path or Path(folder) / "rows.csv"
        opened = open_device(device)
        near_s = seconds * (1 - _FAR_SHARE)
        KernelRun(opened, "quick", table).measure(near_s, say)
        far = KernelRun(opened, "full", table, ops=_FAR_OPS)
        far.measure(seconds - near_s, say)
        host = [] if opened.is_cuda else dispatch_rows(opened)
        return [*far.rows, *host]
