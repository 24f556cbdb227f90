"""Built-in workloads: models built straight in the IR, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.frontends.workloads.catalog import (
        WORKLOADS,
        build_workload,
        find_workload,
    )
    from perfc.frontends.workloads.protocol import Workload, widths_of
else:
    __getattr__ = door(
        __name__,
        {
            "catalog": ("WORKLOADS", "build_workload", "find_workload"),
            "protocol": ("Workload", "widths_of"),
        },
    )

__all__ = [
    "WORKLOADS",
    "Workload",
    "build_workload",
    "find_workload",
    "widths_of",
]
