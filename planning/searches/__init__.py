"""Searches over plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.planning.searches.drafts import Draft, Task
    from perfc.planning.searches.evaluation import (
        Times,
        evaluate,
        plan_loads,
        plan_times,
        read_times,
    )
    from perfc.planning.searches.exhaustive_search import count_plans
    from perfc.planning.searches.greedy_search import BASELINES
    from perfc.planning.searches.kendall import kendall_tau
    from perfc.planning.searches.knapsack import Option, best_options
    from perfc.planning.searches.portfolio import SEARCHES, search
    from perfc.planning.searches.tier_search import (
        EXACT,
        LOCAL,
        TierPlan,
        densest_first,
        search_tiers,
        smallest_first,
    )
    from perfc.planning.searches.tier_setting import (
        COST,
        OBJECTIVES,
        POWER,
        TIME,
        HostService,
        LatencyTarget,
        TierSetting,
    )
    from perfc.planning.searches.tier_task import TierTask
else:
    __getattr__ = door(
        __name__,
        {
            "drafts": ("Draft", "Task"),
            "evaluation": (
                "Times",
                "evaluate",
                "plan_loads",
                "plan_times",
                "read_times",
            ),
            "exhaustive_search": ("count_plans",),
            "greedy_search": ("BASELINES",),
            "kendall": ("kendall_tau",),
            "knapsack": ("Option", "best_options"),
            "portfolio": ("SEARCHES", "search"),
            "tier_search": (
                "EXACT",
                "LOCAL",
                "TierPlan",
                "densest_first",
                "search_tiers",
                "smallest_first",
            ),
            "tier_setting": (
                "COST",
                "HostService",
                "LatencyTarget",
                "OBJECTIVES",
                "POWER",
                "TIME",
                "TierSetting",
            ),
            "tier_task": ("TierTask",),
        },
    )

__all__ = [
    "BASELINES",
    "COST",
    "EXACT",
    "LOCAL",
    "OBJECTIVES",
    "POWER",
    "SEARCHES",
    "TIME",
    "Draft",
    "HostService",
    "LatencyTarget",
    "Option",
    "Task",
    "TierPlan",
    "TierSetting",
    "TierTask",
    "Times",
    "best_options",
    "count_plans",
    "densest_first",
    "evaluate",
    "kendall_tau",
    "plan_loads",
    "plan_times",
    "read_times",
    "search",
    "search_tiers",
    "smallest_first",
]
