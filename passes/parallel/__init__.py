"""Strategies that spread a step over ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.parallel.data import MAX_RANKS, DataParallel, Straggler
    from perfc.passes.parallel.fsdp import Fsdp, Regather
    from perfc.passes.parallel.pipeline import PipelineParallel
    from perfc.passes.parallel.tensor import TensorParallel
else:
    __getattr__ = door(
        __name__,
        {
            "data": ("DataParallel", "MAX_RANKS", "Straggler"),
            "fsdp": ("Fsdp", "Regather"),
            "pipeline": ("PipelineParallel",),
            "tensor": ("TensorParallel",),
        },
    )

__all__ = [
    "MAX_RANKS",
    "DataParallel",
    "Fsdp",
    "PipelineParallel",
    "Regather",
    "Straggler",
    "TensorParallel",
]
