"""Frontends lower models of other formats to programs.

What needs PyTorch is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.frontends.torch import TRANSLATION, Optimizer
    from perfc.frontends.workloads import WORKLOADS, find_workload, widths_of
else:
    __getattr__ = door(
        __name__,
        {
            "torch": ("Optimizer", "TRANSLATION"),
            "workloads": ("WORKLOADS", "find_workload", "widths_of"),
        },
    )

__all__ = [
    "TRANSLATION",
    "WORKLOADS",
    "Optimizer",
    "find_workload",
    "widths_of",
]
