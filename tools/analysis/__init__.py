"""The library's calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.analysis.analyzer import (
        analyze,
        check_run,
        check_world,
        priced,
        report_on,
        run_of,
    )
    from perfc.tools.analysis.conversions import own_us
    from perfc.tools.analysis.row_layouts import laid_out
    from perfc.tools.analysis.torch_models import compile_backend, from_torch
else:
    __getattr__ = door(
        __name__,
        {
            "analyzer": (
                "analyze",
                "check_run",
                "check_world",
                "priced",
                "report_on",
                "run_of",
            ),
            "conversions": ("own_us",),
            "row_layouts": ("laid_out",),
            "torch_models": ("compile_backend", "from_torch"),
        },
    )

__all__ = [
    "analyze",
    "check_run",
    "check_world",
    "compile_backend",
    "from_torch",
    "laid_out",
    "own_us",
    "priced",
    "report_on",
    "run_of",
]
