"""What tensors take, and what the caching allocator makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.memory.many_memory import many_peaks, scratch_kernels
    from perfc.passes.memory.memory import BLAS, Memory
    from perfc.passes.memory.memory_use import (
        LASTING,
        MEMORY,
        Buffer,
        BufferKind,
        MemoryUse,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "many_memory": ("many_peaks", "scratch_kernels"),
            "memory": ("BLAS", "Memory"),
            "memory_use": ("Buffer", "BufferKind", "LASTING", "MEMORY", "MemoryUse"),
        },
    )

__all__ = [
    "BLAS",
    "LASTING",
    "MEMORY",
    "Buffer",
    "BufferKind",
    "Memory",
    "MemoryUse",
    "many_peaks",
    "scratch_kernels",
]
