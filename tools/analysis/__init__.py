"""The library's calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.analysis.analyzer import (
        DTYPES,
        INPUTS,
        RUNTIMES,
        analyze,
        check_world,
        conversions,
        split_passes,
    )
    from perfc.tools.analysis.torch_models import compile_backend, from_torch
else:
    __getattr__ = door(
        __name__,
        {
            "analyzer": (
                "DTYPES",
                "INPUTS",
                "RUNTIMES",
                "analyze",
                "check_world",
                "conversions",
                "split_passes",
            ),
            "torch_models": ("compile_backend", "from_torch"),
        },
    )

__all__ = [
    "DTYPES",
    "INPUTS",
    "RUNTIMES",
    "analyze",
    "check_world",
    "compile_backend",
    "conversions",
    "from_torch",
    "split_passes",
]
