"""`perfc place`: in which tiers of memory tables lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.placing.base import QueriedModel
    from perfc.tools.placing.cached_placement import (
        CachedPlacement,
        CacheQuestion,
        check_tier,
        look_ahead,
    )
    from perfc.tools.placing.placing import place
    from perfc.tools.placing.question import (
        Question,
        WantedTier,
        read_latency_target,
        read_plans,
        read_tiers,
    )
    from perfc.tools.placing.report import Placement
    from perfc.tools.placing.scenario import (
        Scenario,
        is_scenario,
        read_scenario,
        scenario_names,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "base": ("QueriedModel",),
            "cached_placement": (
                "CachedPlacement",
                "CacheQuestion",
                "check_tier",
                "look_ahead",
            ),
            "placing": ("place",),
            "question": (
                "Question",
                "WantedTier",
                "read_latency_target",
                "read_plans",
                "read_tiers",
            ),
            "report": ("Placement",),
            "scenario": (
                "Scenario",
                "is_scenario",
                "read_scenario",
                "scenario_names",
            ),
        },
    )

__all__ = [
    "CacheQuestion",
    "CachedPlacement",
    "Placement",
    "QueriedModel",
    "Question",
    "Scenario",
    "WantedTier",
    "check_tier",
    "is_scenario",
    "look_ahead",
    "place",
    "read_latency_target",
    "read_plans",
    "read_scenario",
    "read_tiers",
    "scenario_names",
]
