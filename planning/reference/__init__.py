"""Planners of others, reproduced to the digit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.planning.reference.torchrec import (
        GIB,
        CacheStats,
        CollectiveNetwork,
        CommBytes,
        Constraints,
        PerfRules,
        ShardSize,
        Storage,
        StorageRules,
        Topology,
        TorchRecCost,
        TorchRecPlanner,
        TwoTierNetwork,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "torchrec": (
                "CacheStats",
                "CollectiveNetwork",
                "CommBytes",
                "Constraints",
                "GIB",
                "PerfRules",
                "ShardSize",
                "Storage",
                "StorageRules",
                "Topology",
                "TorchRecCost",
                "TorchRecPlanner",
                "TwoTierNetwork",
            ),
        },
    )

__all__ = [
    "GIB",
    "CacheStats",
    "CollectiveNetwork",
    "CommBytes",
    "Constraints",
    "PerfRules",
    "ShardSize",
    "Storage",
    "StorageRules",
    "Topology",
    "TorchRecCost",
    "TorchRecPlanner",
    "TwoTierNetwork",
]
