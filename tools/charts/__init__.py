"""The data behind charts of a report: numbers, not yet drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.charts.memory import (
        MEMORY_CLASSES,
        MemoryOverTime,
        memory_over_time,
        memory_timeline,
    )
    from perfc.tools.charts.roofline import Roofline, RooflinePoint, roofline_points
else:
    __getattr__ = door(
        __name__,
        {
            "memory": (
                "MEMORY_CLASSES",
                "MemoryOverTime",
                "memory_over_time",
                "memory_timeline",
            ),
            "roofline": ("Roofline", "RooflinePoint", "roofline_points"),
        },
    )

__all__ = [
    "MEMORY_CLASSES",
    "MemoryOverTime",
    "Roofline",
    "RooflinePoint",
    "memory_over_time",
    "memory_timeline",
    "roofline_points",
]
