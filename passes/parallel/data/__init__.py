"""Data parallelism: replicas, buckets of gradients, who is late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.parallel.data.data_parallel import MAX_RANKS, DataParallel
    from perfc.passes.parallel.data.replicas import Replicas
    from perfc.passes.parallel.data.straggler import Straggler
else:
    __getattr__ = door(
        __name__,
        {
            "data_parallel": ("DataParallel", "MAX_RANKS"),
            "replicas": ("Replicas",),
            "straggler": ("Straggler",),
        },
    )

__all__ = [
    "MAX_RANKS",
    "DataParallel",
    "Replicas",
    "Straggler",
]
