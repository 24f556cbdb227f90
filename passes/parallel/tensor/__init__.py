"""Tensor parallelism: GEMMs and tables split over ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.parallel.tensor.tensor_parallel import TensorParallel
else:
    __getattr__ = door(
        __name__,
        {
            "tensor_parallel": ("TensorParallel",),
        },
    )

__all__ = [
    "TensorParallel",
]
