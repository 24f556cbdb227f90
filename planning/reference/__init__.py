"""TorchRec's planner, reproduced to the digit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.planning.reference.cost import TorchRecCost
    from perfc.planning.reference.perf import (
        CacheStats,
        CommBytes,
        Constraints,
        PerfRules,
    )
    from perfc.planning.reference.planner import TorchRecPlanner
    from perfc.planning.reference.storage import (
        ShardSize,
        Storage,
        StorageRules,
    )
    from perfc.planning.reference.topology import (
        GIB,
        CollectiveNetwork,
        Topology,
        TwoTierNetwork,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "cost": ("TorchRecCost",),
            "perf": ("CacheStats", "CommBytes", "Constraints", "PerfRules"),
            "planner": ("TorchRecPlanner",),
            "storage": ("ShardSize", "Storage", "StorageRules"),
            "topology": ("CollectiveNetwork", "GIB", "Topology", "TwoTierNetwork"),
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
