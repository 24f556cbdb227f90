"""`perfc shard`: plans for embedding tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.sharding.costs import COSTS
    from perfc.tools.sharding.model import ShardModel, world_of
    from perfc.tools.sharding.report import Sharding
    from perfc.tools.sharding.search import PlanSearch
    from perfc.tools.sharding.sharding import shard
else:
    __getattr__ = door(
        __name__,
        {
            "costs": ("COSTS",),
            "model": ("ShardModel", "world_of"),
            "report": ("Sharding",),
            "search": ("PlanSearch",),
            "sharding": ("shard",),
        },
    )

__all__ = [
    "COSTS",
    "PlanSearch",
    "ShardModel",
    "Sharding",
    "shard",
    "world_of",
]
