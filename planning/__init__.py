"""Plans of where a model's parts go on many GPUs, and what they cost."""

from __future__ import annotations

from perfc.planning.beam_search import beam_search
from perfc.planning.cost import PlanCost, Shard, Table
from perfc.planning.exhaustive import count_plans, exhaustive
from perfc.planning.greedy import BASELINES, greedy
from perfc.planning.local_search import LocalSearch
from perfc.planning.options import Draft, Option, Task
from perfc.planning.part_prices import LookupOps, Part, PartPrices
from perfc.planning.physical import KINDS, MemoryNeed, PhysicalCost
from perfc.planning.plan_text import plan_text
from perfc.planning.roles import DEALS, MEASURES
from perfc.planning.search import SEARCHES, Found, search
from perfc.planning.step_model import StepModel, reduce_timeline
from perfc.planning.step_template import Reference
from perfc.planning.strategy import Strategy
from perfc.planning.strategy_price import (
    OBJECTIVES,
    PRICE,
    Objective,
    StrategyBound,
    StrategyPrice,
    least_share,
)
from perfc.planning.strategy_search import (
    FAST,
    METHODS,
    Findings,
    Left,
    Search,
    StrategyPricer,
)
from perfc.planning.strategy_space import Refused, StrategySpace
from perfc.planning.strategy_text import read_strategy
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
    "BASELINES",
    "DEALS",
    "FAST",
    "GIB",
    "KINDS",
    "MEASURES",
    "METHODS",
    "OBJECTIVES",
    "PRICE",
    "SEARCHES",
    "CacheStats",
    "CollectiveNetwork",
    "CommBytes",
    "Constraints",
    "Draft",
    "Findings",
    "Found",
    "Left",
    "LocalSearch",
    "LookupOps",
    "MemoryNeed",
    "Objective",
    "Option",
    "Part",
    "PartPrices",
    "Perf",
    "PerfRules",
    "PhysicalCost",
    "PlanCost",
    "Reference",
    "Refused",
    "Search",
    "Shard",
    "ShardSize",
    "StepModel",
    "Storage",
    "StorageRules",
    "Strategy",
    "StrategyBound",
    "StrategyPrice",
    "StrategyPricer",
    "StrategySpace",
    "Table",
    "Task",
    "Topology",
    "TorchRecCost",
    "TwoTierNetwork",
    "beam_search",
    "count_plans",
    "exhaustive",
    "greedy",
    "least_share",
    "plan_text",
    "read_strategy",
    "reduce_timeline",
    "search",
]
