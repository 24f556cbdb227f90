"""Drivers: the library's calls, the command line, and the reports of both.

Names are loaded when first used, so that `perfc --help` stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.analysis import analyze, compile_backend, from_torch
    from perfc.tools.charts import memory_over_time
    from perfc.tools.diffs import Diff, diff
    from perfc.tools.models import Model, conversions, export_onnx, load
    from perfc.tools.oracle import Oracle
    from perfc.tools.pages import MOST_BYTES, Slices, Timeline, TimelineLane
    from perfc.tools.report_page import reports_page
    from perfc.tools.reports import (
        NODE_KEYS,
        Comparison,
        Exporter,
        Report,
        Results,
        format_bytes,
        format_json,
        format_us,
        kernel_limit,
    )
    from perfc.tools.sweeping import Sweep, sweep
    from perfc.tools.tile_time import tile_time_us
else:
    __getattr__ = door(
        __name__,
        {
            "analysis": ("analyze", "compile_backend", "from_torch"),
            "charts": ("memory_over_time",),
            "diffs": ("Diff", "diff"),
            "models": ("Model", "conversions", "export_onnx", "load"),
            "oracle": ("Oracle",),
            "pages": ("MOST_BYTES", "Slices", "Timeline", "TimelineLane"),
            "report_page": ("reports_page",),
            "reports": (
                "Comparison",
                "Exporter",
                "NODE_KEYS",
                "Report",
                "Results",
                "format_bytes",
                "format_json",
                "format_us",
                "kernel_limit",
            ),
            "sweeping": ("Sweep", "sweep"),
            "tile_time": ("tile_time_us",),
        },
    )

__all__ = [
    "MOST_BYTES",
    "NODE_KEYS",
    "Comparison",
    "Diff",
    "Exporter",
    "Model",
    "Oracle",
    "Report",
    "Results",
    "Slices",
    "Sweep",
    "Timeline",
    "TimelineLane",
    "analyze",
    "compile_backend",
    "conversions",
    "diff",
    "export_onnx",
    "format_bytes",
    "format_json",
    "format_us",
    "from_torch",
    "kernel_limit",
    "load",
    "memory_over_time",
    "reports_page",
    "sweep",
    "tile_time_us",
]
