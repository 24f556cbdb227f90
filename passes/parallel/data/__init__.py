"""Data parallelism: replicas, buckets of gradients, who is late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.parallel.data.data_parallel import DataParallel
    from perfc.passes.parallel.data.replicas import Replicas
    from perfc.passes.parallel.data.straggler import Straggler
else:
    __getattr__ = door(
        __name__,
        {
            "data_parallel": ("DataParallel",),
            "replicas": ("Replicas",),
            "straggler": ("Straggler",),
        },
    )

__all__ = [
    "DataParallel",
    "Replicas",
    "Straggler",
]
