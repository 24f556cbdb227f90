"""What eager PyTorch launches for each op, by family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.lowering.eager.cpu import on_cpu
    from perfc.passes.lowering.eager.embedding import is_far, is_looked_up_elsewhere
    from perfc.passes.lowering.eager.memory import SCRATCH, blas_workspace_bytes
    from perfc.passes.lowering.eager.movement import input_launch
    from perfc.passes.lowering.eager.rules import eager_launches
    from perfc.passes.lowering.eager.site import (
        DEVICE_SYNC,
        EVENT_RECORD,
        MEMSET,
        PARTS,
        SCRATCHES,
        STREAM_SYNC,
        STREAM_WAIT,
        WORK_WAIT,
        Eager,
        Launch,
        Layout,
        Settings,
        Site,
        Tensor,
        Waits,
        bound,
        dtype_name,
        scratch_bytes,
        vector_math,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "cpu": ("on_cpu",),
            "embedding": ("is_far", "is_looked_up_elsewhere"),
            "memory": ("SCRATCH", "blas_workspace_bytes"),
            "movement": ("input_launch",),
            "rules": ("eager_launches",),
            "site": (
                "DEVICE_SYNC",
                "EVENT_RECORD",
                "Eager",
                "Launch",
                "Layout",
                "MEMSET",
                "PARTS",
                "SCRATCHES",
                "STREAM_SYNC",
                "STREAM_WAIT",
                "Settings",
                "Site",
                "Tensor",
                "Waits",
                "WORK_WAIT",
                "Waits",
                "bound",
                "dtype_name",
                "scratch_bytes",
                "vector_math",
            ),
        },
    )

__all__ = [
    "DEVICE_SYNC",
    "EVENT_RECORD",
    "MEMSET",
    "PARTS",
    "SCRATCH",
    "SCRATCHES",
    "STREAM_SYNC",
    "STREAM_WAIT",
    "WORK_WAIT",
    "Eager",
    "Launch",
    "Layout",
    "Settings",
    "Site",
    "Tensor",
    "Waits",
    "blas_workspace_bytes",
    "bound",
    "dtype_name",
    "eager_launches",
    "input_launch",
    "is_far",
    "is_looked_up_elsewhere",
    "on_cpu",
    "scratch_bytes",
    "vector_math",
]
