"""Pipelines: stages, their cuts, microbatches in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.parallel.pipeline.pipeline_parallel import PipelineParallel
else:
    __getattr__ = door(
        __name__,
        {
            "pipeline_parallel": ("PipelineParallel",),
        },
    )

__all__ = [
    "PipelineParallel",
]
