"""`perfc sweep`: many configurations of a model, in parallel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.sweeping.executors import find_executor
    from perfc.tools.sweeping.space import INTERVAL, METRICS, USUAL, Space
    from perfc.tools.sweeping.sweeping import Progress, Sweep, run_sweep, sweep
    from perfc.tools.sweeping.varied import read_varied
else:
    __getattr__ = door(
        __name__,
        {
            "executors": ("find_executor",),
            "space": ("INTERVAL", "METRICS", "Space", "USUAL"),
            "sweeping": ("Progress", "Sweep", "run_sweep", "sweep"),
            "varied": ("read_varied",),
        },
    )

__all__ = [
    "INTERVAL",
    "METRICS",
    "USUAL",
    "Progress",
    "Space",
    "Sweep",
    "find_executor",
    "read_varied",
    "run_sweep",
    "sweep",
]
