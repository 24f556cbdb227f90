"""`perfc shard`: plans for embedding tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.sharding.costs import COSTS
    from perfc.tools.sharding.model import ShardModel, world_of
    from perfc.tools.sharding.page import shard_page
    from perfc.tools.sharding.report import shard_json, shard_text
    from perfc.tools.sharding.search import PlanSearch, Sharding, shard
else:
    __getattr__ = door(
        __name__,
        {
            "costs": ("COSTS",),
            "model": ("ShardModel", "world_of"),
            "page": ("shard_page",),
            "report": ("shard_json", "shard_text"),
            "search": ("PlanSearch", "Sharding", "shard"),
        },
    )

__all__ = [
    "COSTS",
    "PlanSearch",
    "ShardModel",
    "Sharding",
    "shard",
    "shard_json",
    "shard_page",
    "shard_text",
    "world_of",
]
