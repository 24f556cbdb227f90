"""Drivers: the library's calls, the command line, and the reports of both.

Names are loaded when first used, so that `perfc --help` stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.analysis import analyze, compile_backend, from_torch
    from perfc.tools.diffs import Diff, diff
    from perfc.tools.models import Model, conversions, export_onnx, load
    from perfc.tools.oracle import Oracle
    from perfc.tools.reports import (
        NODE_KEYS,
        PAGE_SCRIPT,
        PAGE_STYLE,
        Comparison,
        Exporter,
        Report,
        Results,
        compared,
        comparison_rows,
        format_bytes,
        format_json,
        format_us,
        kernel_limit,
        memory_timeline,
    )
    from perfc.tools.sweeping import Sweep, sweep
    from perfc.tools.tile_time import tile_time_us
else:
    __getattr__ = door(
        __name__,
        {
            "analysis": ("analyze", "compile_backend", "from_torch"),
            "diffs": ("Diff", "diff"),
            "models": ("Model", "conversions", "export_onnx", "load"),
            "oracle": ("Oracle",),
            "reports": (
                "Comparison",
                "Exporter",
                "NODE_KEYS",
                "PAGE_SCRIPT",
                "PAGE_STYLE",
                "Report",
                "Results",
                "compared",
                "comparison_rows",
                "format_bytes",
                "format_json",
                "format_us",
                "kernel_limit",
                "memory_timeline",
            ),
            "sweeping": ("Sweep", "sweep"),
            "tile_time": ("tile_time_us",),
        },
    )

__all__ = [
    "NODE_KEYS",
    "PAGE_SCRIPT",
    "PAGE_STYLE",
    "Comparison",
    "Diff",
    "Exporter",
    "Model",
    "Oracle",
    "Report",
    "Results",
    "Sweep",
    "analyze",
    "compared",
    "comparison_rows",
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
    "memory_timeline",
    "sweep",
    "tile_time_us",
]
