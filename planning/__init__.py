"""Plans of where a model's parts go on many GPUs, and what they cost."""

from __future__ import annotations

from perfc.planning.cost import PlanCost, Shard, Table

__all__ = ["PlanCost", "Shard", "Table"]
