"""Plans of where a model's parts go on many GPUs, and what they cost."""

from __future__ import annotations

from perfc.planning.cost import PlanCost, Shard, Table
from perfc.planning.torchrec import TorchRecCost
from perfc.planning.torchrec_perf import (
    CacheStats,
    CommBytes,
    Constraints,
    Perf,
    PerfRules,
)
from perfc.planning.torchrec_storage import ShardSize, Storage, StorageRules
from perfc.planning.torchrec_topology import (
    GIB,
    CollectiveNetwork,
    Topology,
    TwoTierNetwork,
)

__all__ = [
    "GIB",
    "CacheStats",
    "CollectiveNetwork",
    "CommBytes",
    "Constraints",
    "Perf",
    "PerfRules",
    "PlanCost",
    "Shard",
    "ShardSize",
    "Storage",
    "StorageRules",
    "Table",
    "Topology",
    "TorchRecCost",
    "TwoTierNetwork",
]
