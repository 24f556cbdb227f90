"""Lookups of embedding tables, and the updates of their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.costmodels.embedding.bag import EMBEDDING_BAG, LOAD_LATENCY_S
    from perfc.costmodels.embedding.far_tables import (
        RPC_US,
        far_seconds,
        is_on_server,
        on_server_s,
        ranks_together,
        server_target,
    )
    from perfc.costmodels.embedding.places import (
        DRAM,
        HOST,
        REMOTE,
        ROW_CACHE_FILL,
        UVM,
        UVM_CACHING,
        device_bytes,
    )
    from perfc.costmodels.embedding.tiers import EMBEDDING_TIERS
    from perfc.costmodels.embedding.update import EMBEDDING_UPDATE
else:
    __getattr__ = door(
        __name__,
        {
            "bag": ("EMBEDDING_BAG", "LOAD_LATENCY_S"),
            "far_tables": (
                "RPC_US",
                "far_seconds",
                "is_on_server",
                "on_server_s",
                "ranks_together",
                "server_target",
            ),
            "places": (
                "DRAM",
                "HOST",
                "REMOTE",
                "ROW_CACHE_FILL",
                "UVM",
                "UVM_CACHING",
                "device_bytes",
            ),
            "tiers": ("EMBEDDING_TIERS",),
            "update": ("EMBEDDING_UPDATE",),
        },
    )

__all__ = [
    "DRAM",
    "EMBEDDING_BAG",
    "EMBEDDING_TIERS",
    "EMBEDDING_UPDATE",
    "HOST",
    "LOAD_LATENCY_S",
    "REMOTE",
    "ROW_CACHE_FILL",
    "RPC_US",
    "UVM",
    "UVM_CACHING",
    "device_bytes",
    "far_seconds",
    "is_on_server",
    "on_server_s",
    "ranks_together",
    "server_target",
]
