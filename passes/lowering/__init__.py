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
        blas_workspace_bytes,
        dtype_name,
        scratch_bytes,
    )
    from perfc.passes.lowering.fuse_ops import FuseOps
    from perfc.passes.lowering.inductor import FuseKernels
    from perfc.passes.lowering.launch_graph import fused_nodes
    from perfc.passes.lowering.lower_kernels import LowerKernels
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
                "WORK_WAIT",
                "blas_workspace_bytes",
                "dtype_name",
                "scratch_bytes",
            ),
            "fuse_ops": ("FuseOps",),
            "inductor": ("FuseKernels",),
            "launch_graph": ("fused_nodes",),
            "lower_kernels": ("LowerKernels",),
        },
    )

__all__ = [
    "EVENT_RECORD",
    "MEMSET",
    "PARTS",
    "SCRATCH",
    "SCRATCHES",
    "STREAM_WAIT",
    "WORK_WAIT",
    "CaptureGraph",
    "FuseKernels",
    "FuseOps",
    "LowerKernels",
    "blas_workspace_bytes",
    "dtype_name",
    "fused_nodes",
    "scratch_bytes",
]
