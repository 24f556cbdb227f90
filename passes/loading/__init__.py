"""Data loading: the stages that bring batches to the device, serial or overlapped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.loading.input_pipeline import (
        INPUT_PIPELINE,
        InputPipeline,
        LoadedStep,
    )
    from perfc.passes.loading.stage_file import read_loading
    from perfc.passes.loading.stages import Loading, Stage
else:
    __getattr__ = door(
        __name__,
        {
            "input_pipeline": ("INPUT_PIPELINE", "InputPipeline", "LoadedStep"),
            "stage_file": ("read_loading",),
            "stages": ("Loading", "Stage"),
        },
    )

__all__ = [
    "INPUT_PIPELINE",
    "InputPipeline",
    "LoadedStep",
    "Loading",
    "Stage",
    "read_loading",
]
