"""Kernels that move bytes: memory, caches, scattered access."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.costmodels.streaming.gather import BLOCK_S, together
    from perfc.costmodels.streaming.quantize import SCALED_BLOCK, quantize_seconds
    from perfc.costmodels.streaming.streaming import (
        IDLE,
        KINDS,
        REPEATED,
        STREAMING,
        StreamingModel,
    )
    from perfc.costmodels.streaming.traffic import (
        L2_PARTITIONS,
        L2_SHARE,
        SHARERS,
        stream_seconds,
        stream_share,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "gather": ("BLOCK_S", "together"),
            "quantize": ("SCALED_BLOCK", "quantize_seconds"),
            "streaming": ("IDLE", "KINDS", "REPEATED", "STREAMING", "StreamingModel"),
            "traffic": (
                "L2_PARTITIONS",
                "L2_SHARE",
                "SHARERS",
                "stream_seconds",
                "stream_share",
            ),
        },
    )

__all__ = [
    "BLOCK_S",
    "IDLE",
    "KINDS",
    "L2_PARTITIONS",
    "L2_SHARE",
    "REPEATED",
    "SCALED_BLOCK",
    "SHARERS",
    "STREAMING",
    "StreamingModel",
    "quantize_seconds",
    "stream_seconds",
    "stream_share",
    "together",
]
