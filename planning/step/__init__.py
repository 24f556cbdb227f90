"""The step that a plan is judged by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.planning.step.part_prices import LookupOps, Part, PartPrices
    from perfc.planning.step.physical import MemoryNeed, PhysicalCost, groups_of
    from perfc.planning.step.roles import SHARDING_GROUPS
    from perfc.planning.step.step_model import StepModel, reduce_timeline
    from perfc.planning.step.step_template import Reference
else:
    __getattr__ = door(
        __name__,
        {
            "part_prices": ("LookupOps", "Part", "PartPrices"),
            "physical": ("MemoryNeed", "PhysicalCost", "groups_of"),
            "roles": ("SHARDING_GROUPS",),
            "step_model": ("StepModel", "reduce_timeline"),
            "step_template": ("Reference",),
        },
    )

__all__ = [
    "SHARDING_GROUPS",
    "LookupOps",
    "MemoryNeed",
    "Part",
    "PartPrices",
    "PhysicalCost",
    "Reference",
    "StepModel",
    "groups_of",
    "reduce_timeline",
]
