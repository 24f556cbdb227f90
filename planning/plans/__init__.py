"""Plans for embedding tables: what a rank holds, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.planning.plans.checks import (
        check_placement,
        check_plan,
        check_table,
        check_tables,
        one_of,
        positive,
    )
    from perfc.planning.plans.cost import PlanCost, Shard, Table
    from perfc.planning.plans.options import (
        DEVICE_ONLY,
        MEMORIES,
        Choice,
        Option,
        Tiers,
        by_name,
        cuts,
        options_of,
    )
    from perfc.planning.plans.plan_json import plan_line, plan_text
    from perfc.planning.plans.sharders import SHARDERS, sharder_plan, sharder_plans
    from perfc.planning.plans.tasks import (
        DATA_SETS,
        ShardingTask,
        drawn_tables,
        generate_tasks,
    )
    from perfc.planning.plans.ties import (
        TOLERANCE,
        grades,
        is_less,
        least,
        most,
        ranking,
    )
    from perfc.planning.plans.weight_cost import WeightCost
else:
    __getattr__ = door(
        __name__,
        {
            "checks": (
                "check_placement",
                "check_plan",
                "check_table",
                "check_tables",
                "one_of",
                "positive",
            ),
            "cost": ("PlanCost", "Shard", "Table"),
            "options": (
                "Choice",
                "DEVICE_ONLY",
                "MEMORIES",
                "Option",
                "Tiers",
                "by_name",
                "cuts",
                "options_of",
            ),
            "plan_json": ("plan_line", "plan_text"),
            "sharders": ("SHARDERS", "sharder_plan", "sharder_plans"),
            "tasks": ("DATA_SETS", "ShardingTask", "drawn_tables", "generate_tasks"),
            "ties": ("TOLERANCE", "grades", "is_less", "least", "most", "ranking"),
            "weight_cost": ("WeightCost",),
        },
    )

__all__ = [
    "DATA_SETS",
    "DEVICE_ONLY",
    "MEMORIES",
    "SHARDERS",
    "TOLERANCE",
    "Choice",
    "Option",
    "PlanCost",
    "Shard",
    "ShardingTask",
    "Table",
    "Tiers",
    "WeightCost",
    "by_name",
    "check_placement",
    "check_plan",
    "check_table",
    "check_tables",
    "cuts",
    "drawn_tables",
    "generate_tasks",
    "grades",
    "is_less",
    "least",
    "most",
    "one_of",
    "options_of",
    "plan_line",
    "plan_text",
    "positive",
    "ranking",
    "sharder_plan",
    "sharder_plans",
]
