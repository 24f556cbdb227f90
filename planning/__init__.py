"""Plans of where a model's parts go on many GPUs, and what they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.planning.plans import generate_tasks, sharder_plans
    from perfc.planning.reference import (
        PerfRules,
        Topology,
        TorchRecCost,
        TorchRecPlanner,
    )
    from perfc.planning.searches import evaluate, plan_times, read_times
else:
    __getattr__ = door(
        __name__,
        {
            "plans": ("generate_tasks", "sharder_plans"),
            "reference": ("PerfRules", "Topology", "TorchRecCost", "TorchRecPlanner"),
            "searches": ("evaluate", "plan_times", "read_times"),
        },
    )

__all__ = [
    "PerfRules",
    "Topology",
    "TorchRecCost",
    "TorchRecPlanner",
    "evaluate",
    "generate_tasks",
    "plan_times",
    "read_times",
    "sharder_plans",
]
