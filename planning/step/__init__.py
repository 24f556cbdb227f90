"""The step that a plan is judged by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.planning.step.part_prices import LookupOps, Part, PartPrices
    from perfc.planning.step.physical import MemoryNeed, PhysicalCost, deals_of
    from perfc.planning.step.roles import DEALS
    from perfc.planning.step.step_model import StepModel, reduce_timeline
    from perfc.planning.step.step_template import Reference
else:
    __getattr__ = door(
        __name__,
        {
            "part_prices": ("LookupOps", "Part", "PartPrices"),
            "physical": ("MemoryNeed", "PhysicalCost", "deals_of"),
            "roles": ("DEALS",),
            "step_model": ("StepModel", "reduce_timeline"),
            "step_template": ("Reference",),
        },
    )

__all__ = [
    "DEALS",
    "LookupOps",
    "MemoryNeed",
    "Part",
    "PartPrices",
    "PhysicalCost",
    "Reference",
    "StepModel",
    "deals_of",
    "reduce_timeline",
]
