"""What `torch.compile` makes of kernels: fusion as Inductor does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.lowering.inductor.fuse_kernels import FuseKernels
else:
    __getattr__ = door(
        __name__,
        {
            "fuse_kernels": ("FuseKernels",),
        },
    )

__all__ = [
    "FuseKernels",
]
