"""Kernels of GEMMs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.lowering.eager.gemm.matmul import Sizes, gemm_launch
else:
    __getattr__ = door(
        __name__,
        {
            "matmul": ("Sizes", "gemm_launch"),
        },
    )

__all__ = [
    "Sizes",
    "gemm_launch",
]
