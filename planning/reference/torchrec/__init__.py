"""TorchRec's planner, reproduced to the digit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.planning.reference.torchrec.cost import TorchRecCost
    from perfc.planning.reference.torchrec.perf import (
        CacheStats,
        CommBytes,
        Constraints,
        PerfRules,
    )
    from perfc.planning.reference.torchrec.planner import TorchRecPlanner
    from perfc.planning.reference.torchrec.storage import (
        ShardSize,
        Storage,
        StorageRules,
    )
    from perfc.planning.reference.torchrec.topology import (
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
