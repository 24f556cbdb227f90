"""Strategies that spread a step over ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.parallel.data import DataParallel, Straggler
    from perfc.passes.parallel.fsdp import Fsdp, Regather
    from perfc.passes.parallel.pipeline import (
        GPIPE,
        ONE_F_ONE_B,
        Codec,
        Compress,
        Layers,
        PipelineParallel,
        Stages,
        steps_of,
    )
    from perfc.passes.parallel.tensor import TensorParallel
else:
    __getattr__ = door(
        __name__,
        {
            "data": ("DataParallel", "Straggler"),
            "fsdp": ("Fsdp", "Regather"),
            "pipeline": (
                "Codec",
                "Compress",
                "GPIPE",
                "Layers",
                "ONE_F_ONE_B",
                "PipelineParallel",
                "Stages",
                "steps_of",
            ),
            "tensor": ("TensorParallel",),
        },
    )

__all__ = [
    "GPIPE",
    "ONE_F_ONE_B",
    "Codec",
    "Compress",
    "DataParallel",
    "Fsdp",
    "Layers",
    "PipelineParallel",
    "Regather",
    "Stages",
    "Straggler",
    "TensorParallel",
    "steps_of",
]
