"""Plans of where a model's parts go on many GPUs, and what they cost."""

from __future__ import annotations

from perfc.planning.beam_search import beam_search
from perfc.planning.checks import check_plan, check_tables
from perfc.planning.cost import PlanCost, Shard, Table
from perfc.planning.drafts import Draft, Task
from perfc.planning.evaluation import (
    SHARDING_TIMES,
    Choice,
    Evaluation,
    ShardingTime,
    Times,
    evaluate,
    plan_loads,
    plan_times,
    read_times,
)
from perfc.planning.exhaustive import count_plans, exhaustive
from perfc.planning.greedy import BASELINES, greedy
from perfc.planning.kendall import kendall_tau
from perfc.planning.local_search import LocalSearch
from perfc.planning.options import DEVICE_ONLY, MEMORIES, Option, Tiers
from perfc.planning.part_prices import LookupOps, Part, PartPrices
from perfc.planning.physical import KINDS, MemoryNeed, PhysicalCost, deals_of
from perfc.planning.plan_json import plan_line, plan_text
from perfc.planning.roles import DEALS, MEASURES
from perfc.planning.searches import SEARCHES, Found, search
from perfc.planning.sharders import SHARDERS, sharder_plan, sharder_plans
from perfc.planning.sizes import size_text
from perfc.planning.step_model import StepModel, reduce_timeline
from perfc.planning.step_template import Reference
from perfc.planning.strategy import INTERLEAVED, Strategy
from perfc.planning.strategy_price import (
    OBJECTIVES,
    PRICE,
    Objective,
    StrategyBound,
    StrategyPrice,
    least_interleaved_s,
    least_memory,
    least_share,
    least_step_s,
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
from perfc.planning.tasks import (
    DATA_SETS,
    DataSet,
    ShardingTask,
    drawn_tables,
    generate_tasks,
)
from perfc.planning.ties import most, ranking
from perfc.planning.torchrec import TorchRecCost
from perfc.planning.torchrec_perf import (
    CacheStats,
    CommBytes,
    Constraints,
    Perf,
    PerfRules,
)
from perfc.planning.torchrec_planner import Planned, TorchRecPlanner
from perfc.planning.torchrec_storage import ShardSize, Storage, StorageRules
from perfc.planning.torchrec_topology import (
    GIB,
    CollectiveNetwork,
    Topology,
    TwoTierNetwork,
)
from perfc.planning.weight_cost import WeightCost

__all__ = [
    "BASELINES",
    "DATA_SETS",
    "DEALS",
    "DEVICE_ONLY",
    "FAST",
    "GIB",
    "INTERLEAVED",
    "KINDS",
    "MEASURES",
    "MEMORIES",
    "METHODS",
    "OBJECTIVES",
    "PRICE",
    "SEARCHES",
    "SHARDERS",
    "SHARDING_TIMES",
    "CacheStats",
    "Choice",
    "CollectiveNetwork",
    "CommBytes",
    "Constraints",
    "DataSet",
    "Draft",
    "Evaluation",
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
    "Planned",
    "Reference",
    "Refused",
    "Search",
    "Shard",
    "ShardSize",
    "ShardingTask",
    "ShardingTime",
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
    "Tiers",
    "Times",
    "Topology",
    "TorchRecCost",
    "TorchRecPlanner",
    "TwoTierNetwork",
    "WeightCost",
    "beam_search",
    "check_plan",
    "check_tables",
    "count_plans",
    "deals_of",
    "drawn_tables",
    "evaluate",
    "exhaustive",
    "generate_tasks",
    "greedy",
    "kendall_tau",
    "least_interleaved_s",
    "least_memory",
    "least_share",
    "least_step_s",
    "most",
    "plan_line",
    "plan_loads",
    "plan_text",
    "plan_times",
    "ranking",
    "read_strategy",
    "read_times",
    "reduce_timeline",
    "search",
    "sharder_plan",
    "sharder_plans",
    "size_text",
]
