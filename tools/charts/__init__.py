"""The data behind charts of a report, and what pages show of ranked plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.charts.boxes import Box, box_timeline
    from perfc.tools.charts.busy import stage_timeline
    from perfc.tools.charts.memory import (
        MEMORY_CLASSES,
        MemoryOverTime,
        memory_over_time,
        memory_timeline,
    )
    from perfc.tools.charts.plans import (
        plan_bars,
        plan_heading,
        time_and_memory,
    )
    from perfc.tools.charts.roofline import Roofline, RooflinePoint, roofline_points
else:
    __getattr__ = door(
        __name__,
        {
            "boxes": ("Box", "box_timeline"),
            "busy": ("stage_timeline",),
            "memory": (
                "MEMORY_CLASSES",
                "MemoryOverTime",
                "memory_over_time",
                "memory_timeline",
            ),
            "plans": (
                "plan_bars",
                "plan_heading",
                "time_and_memory",
            ),
            "roofline": ("Roofline", "RooflinePoint", "roofline_points"),
        },
    )

__all__ = [
    "MEMORY_CLASSES",
    "Box",
    "MemoryOverTime",
    "Roofline",
    "RooflinePoint",
    "box_timeline",
    "memory_over_time",
    "memory_timeline",
    "plan_bars",
    "plan_heading",
    "roofline_points",
    "stage_timeline",
    "time_and_memory",
]
