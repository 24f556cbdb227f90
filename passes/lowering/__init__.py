"""Lowering of ops to kernel launches, as the runtime makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.lowering.capture_graph import CaptureGraph
    from perfc.passes.lowering.eager import (
        EVENT_RECORD,
        MEMSET,
        PARTS,
        SCRATCH,
        SCRATCHES,
        STREAM_WAIT,
        WORK_WAIT,
        Settings,
        blas_workspace_bytes,
        dtype_name,
        scratch_bytes,
    )
    from perfc.passes.lowering.fuse_ops import FuseOps
    from perfc.passes.lowering.inductor import FuseKernels
    from perfc.passes.lowering.launch_graph import fused_nodes
    from perfc.passes.lowering.lower_kernels import LowerKernels, sm_count
    from perfc.passes.lowering.many_sites import (
        ManyKernels,
        ManySites,
        Noted,
        Repeated,
    )
    from perfc.passes.lowering.recipe import RECIPES, Recipe, recipe_of
else:
    __getattr__ = door(
        __name__,
        {
            "capture_graph": ("CaptureGraph",),
            "eager": (
                "EVENT_RECORD",
                "MEMSET",
                "PARTS",
                "SCRATCH",
                "SCRATCHES",
                "STREAM_WAIT",
                "Settings",
                "WORK_WAIT",
                "blas_workspace_bytes",
                "dtype_name",
                "scratch_bytes",
            ),
            "fuse_ops": ("FuseOps",),
            "inductor": ("FuseKernels",),
            "launch_graph": ("fused_nodes",),
            "lower_kernels": ("LowerKernels", "sm_count"),
            "many_sites": ("ManyKernels", "ManySites", "Noted", "Repeated"),
            "recipe": ("RECIPES", "Recipe", "recipe_of"),
        },
    )

__all__ = [
    "EVENT_RECORD",
    "MEMSET",
    "PARTS",
    "RECIPES",
    "SCRATCH",
    "SCRATCHES",
    "STREAM_WAIT",
    "WORK_WAIT",
    "CaptureGraph",
    "FuseKernels",
    "FuseOps",
    "LowerKernels",
    "ManyKernels",
    "ManySites",
    "Noted",
    "Recipe",
    "Repeated",
    "Settings",
    "blas_workspace_bytes",
    "dtype_name",
    "fused_nodes",
    "recipe_of",
    "scratch_bytes",
    "sm_count",
]
