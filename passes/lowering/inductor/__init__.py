"""What `torch.compile` makes of kernels: fusion as Inductor does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.lowering.inductor.fuse_kernels import FuseKernels
    from perfc.passes.lowering.inductor.fused_kernel import fused_nodes
else:
    __getattr__ = door(
        __name__,
        {
            "fuse_kernels": ("FuseKernels",),
            "fused_kernel": ("fused_nodes",),
        },
    )

__all__ = [
    "FuseKernels",
    "fused_nodes",
]
