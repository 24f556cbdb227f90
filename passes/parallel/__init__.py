"""Strategies that spread a step over ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.parallel.data import DataParallel, Straggler
    from perfc.passes.parallel.fsdp import Fsdp, Regather
    from perfc.passes.parallel.pipeline import PipelineParallel
    from perfc.passes.parallel.tensor import TensorParallel
else:
    __getattr__ = door(
        __name__,
        {
            "data": ("DataParallel", "Straggler"),
            "fsdp": ("Fsdp", "Regather"),
            "pipeline": ("PipelineParallel",),
            "tensor": ("TensorParallel",),
        },
    )

__all__ = [
    "DataParallel",
    "Fsdp",
    "PipelineParallel",
    "Regather",
    "Straggler",
    "TensorParallel",
]
