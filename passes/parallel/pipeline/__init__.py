"""Pipelines: stages, their cuts, microbatches in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.parallel.pipeline.compress import Codec, Compress
    from perfc.passes.parallel.pipeline.microbatches import (
        GPIPE,
        ONE_F_ONE_B,
        steps_of,
    )
    from perfc.passes.parallel.pipeline.pipeline_parallel import PipelineParallel
    from perfc.passes.parallel.pipeline.pipeline_stages import Stages
    from perfc.passes.parallel.pipeline.stage_cuts import Layers
else:
    __getattr__ = door(
        __name__,
        {
            "compress": ("Codec", "Compress"),
            "microbatches": ("GPIPE", "ONE_F_ONE_B", "steps_of"),
            "pipeline_parallel": ("PipelineParallel",),
            "pipeline_stages": ("Stages",),
            "stage_cuts": ("Layers",),
        },
    )

__all__ = [
    "GPIPE",
    "ONE_F_ONE_B",
    "Codec",
    "Compress",
    "Layers",
    "PipelineParallel",
    "Stages",
    "steps_of",
]
